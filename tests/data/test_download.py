"""What isn't there is downloaded, whole and with the right checksum, or not at all. The server is this machine."""

import dataclasses
import http.server
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tiny_data as tiny
from filelock import FileLock
from tiny_data import CIFAR10_BINARY, MNIST_FILES
from tiny_runs import HELPERS, Killed

import adabest
from adabest.data.catalog import OFFICIAL
from adabest.data.download import fetch
from adabest.data.official import load_official
from adabest.data.spec import Remote, Spec
from adabest.errors import InputError

ARCHIVE = tiny.tar_archive("cifar-10-batches-bin", CIFAR10_BINARY)
PARTIAL, LOCK = ".adabest-partial", ".adabest.lock"


class Site(http.server.ThreadingHTTPServer):
    """A site that serves files from memory, and may be told to misbehave.

    Attributes:
        files: What it serves.
        requests: What it was asked for.
        encoded: Whether it declares .gz files to be encoded plain ones, as MNIST's own site did.
        stops_after: After how many bytes it falls silent.
        silent: Set when it has.
        goes_on: Set when it may go on.
    """

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Visitor)
        self.files = files
        self.requests: list[str] = []
        self.encoded = False
        self.stops_after: int | None = None
        self.silent, self.goes_on = threading.Event(), threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"


class Visitor(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        name = self.path.removeprefix("/")
        self.server.requests.append(name)
        if name not in self.server.files:
            self.send_error(404)
            return
        content = self.server.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        if self.server.encoded:
            self.send_header("Content-Encoding", "x-gzip")
        self.end_headers()
        cut = self.server.stops_after
        self.wfile.write(content[:cut])
        if cut is not None:
            self.wfile.flush()
            self.server.silent.set()
            self.server.goes_on.wait()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Site]:
    with Site(files) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            site.goes_on.set()
            site.shutdown()
            thread.join()


def mnist_from(*sites: str) -> Spec:
    remotes = tuple(
        Remote(f"MNIST/raw/{name}", tuple(f"{site}{name}" for site in sites), tiny.md5(content))
        for name, content in GZIPPED.items()
    )
    return dataclasses.replace(tiny.TINY_MNIST, remotes=remotes)


def cifar_from(site: str, content: bytes = ARCHIVE) -> Spec:
    remote = Remote("cifar-10-binary.tar.gz", (f"{site}cifar-10-binary.tar.gz",), tiny.md5(content))
    return dataclasses.replace(tiny.with_archive(tiny.TINY_CIFAR10, content), remotes=(remote,))


GZIPPED = tiny.gzipped(MNIST_FILES)


def below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


class TestDownload:
    def test_missing_files_are_downloaded_once(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with serving(GZIPPED) as site:
            data = load_official(mnist_from(site.url), str(tmp_path))
            again = load_official(mnist_from(site.url), str(tmp_path))
            assert sorted(site.requests) == sorted(GZIPPED)
        assert data.fingerprint() == again.fingerprint()
        assert data.y_train.tolist() == tiny.MNIST_LABELS["train"].tolist()
        assert below(tmp_path) == {f"MNIST/raw/{name}" for name in GZIPPED} | {LOCK}
        assert not (tmp_path / PARTIAL).exists()
        assert "train-images-idx3-ubyte.gz" in capsys.readouterr().err, "progress is shown"

    def test_an_archive_is_downloaded(self, tmp_path: Path) -> None:
        with serving({"cifar-10-binary.tar.gz": ARCHIVE}) as site:
            found = fetch(cifar_from(site.url), tmp_path)
        assert found.path == tmp_path / "cifar-10-binary.tar.gz"
        assert found.path.read_bytes() == ARCHIVE

    def test_the_data_folder_is_made(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Only the platform's cache folder may be missing; one that was named must be there.
        monkeypatch.delenv("ADABEST_DATA", raising=False)
        monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: tmp_path / "cache" / "adabest")
        with serving(GZIPPED) as site:
            load_official(mnist_from(site.url))
        assert (tmp_path / "cache" / "adabest" / "MNIST" / "raw" / "train-images-idx3-ubyte.gz").is_file()

    def test_only_what_is_missing_is_downloaded(self, tmp_path: Path) -> None:
        kept = {name: GZIPPED[name] for name in list(GZIPPED)[:3]}
        tiny.write(tmp_path / "MNIST" / "raw", kept)
        with serving(GZIPPED) as site:
            load_official(mnist_from(site.url), str(tmp_path))
            assert site.requests == ["t10k-labels-idx1-ubyte.gz"]

    def test_a_file_that_the_server_calls_encoded_stays_as_it_is(self, tmp_path: Path) -> None:
        with serving(GZIPPED) as site:
            site.encoded = True
            load_official(mnist_from(site.url), str(tmp_path))
        assert (tmp_path / "MNIST/raw/train-images-idx3-ubyte.gz").read_bytes() == GZIPPED["train-images-idx3-ubyte.gz"]

    def test_the_next_site_is_asked(self, tmp_path: Path) -> None:
        damaged = GZIPPED | {"train-labels-idx1-ubyte.gz": b"other"}
        with serving({}) as first, serving(damaged) as second, serving(GZIPPED) as third:
            load_official(mnist_from(first.url, second.url, third.url), str(tmp_path))
            assert len(first.requests) == len(second.requests) == 4
            assert third.requests == ["train-labels-idx1-ubyte.gz"]

    def test_a_file_that_another_process_downloaded_is_taken(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def slow_lock(path: Path) -> FileLock:
            tiny.write(tmp_path / "MNIST" / "raw", GZIPPED)
            return FileLock(path)

        monkeypatch.setattr("adabest.data.download.FileLock", slow_lock)
        with serving({}) as site:
            assert fetch(mnist_from(site.url), tmp_path).path == tmp_path / "MNIST" / "raw"
            assert not site.requests


class TestFailure:
    def test_a_file_of_the_wrong_checksum_is_refused(self, tmp_path: Path) -> None:
        with serving({"cifar-10-binary.tar.gz": ARCHIVE}) as site:
            spec = cifar_from(site.url, b"what was published")
            with pytest.raises(InputError) as failure:
                load_official(spec, str(tmp_path))
        message = str(failure.value)
        assert message.startswith(f"cifar10 isn't in {tmp_path}, and cifar-10-binary.tar.gz can't be downloaded (http")
        assert tiny.md5(b"what was published") in message
        assert tiny.md5(ARCHIVE) in message
        assert f"put it at {tmp_path / 'cifar-10-binary.tar.gz'}, or name the folder that has the data" in message
        assert "--data-dir or ADABEST_DATA" in message
        assert below(tmp_path) == {LOCK}

    def test_missing_files_and_sites_are_named(self, tmp_path: Path) -> None:
        tiny.write(tmp_path / "mnist", {"train-images-idx3-ubyte": b""})
        with serving({}) as site:
            url = site.url
            with pytest.raises(InputError, match="404 Client Error"):
                load_official(mnist_from(url), str(tmp_path))
        with pytest.raises(InputError, match=r"mnist lacks train-labels-idx1-ubyte, t10k-.*can't be downloaded \(http"):
            load_official(mnist_from(url), str(tmp_path))
        assert below(tmp_path) == {LOCK, "mnist/train-images-idx3-ubyte"}

    def test_a_connection_that_breaks_leaves_nothing(self, tmp_path: Path) -> None:
        with serving({"cifar-10-binary.tar.gz": ARCHIVE}) as site:
            site.stops_after = len(ARCHIVE) // 2
            site.goes_on.set()
            with pytest.raises(InputError, match="can't be downloaded"):
                fetch(cifar_from(site.url), tmp_path)
            assert below(tmp_path) == {LOCK}
            site.stops_after = None
            assert fetch(cifar_from(site.url), tmp_path).path.read_bytes() == ARCHIVE

    def test_a_folder_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "MNIST").write_text("a file")
        with serving(GZIPPED) as site, pytest.raises(InputError, match=f"mnist can't be downloaded to {tmp_path}: "):
            fetch(mnist_from(site.url), tmp_path)
        assert below(tmp_path) == {"MNIST", LOCK}

    def test_a_folder_in_the_way_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "cifar-10-binary.tar.gz").mkdir()
        with (
            serving({"cifar-10-binary.tar.gz": ARCHIVE}) as site,
            pytest.raises(InputError, match="can't be downloaded"),
        ):
            fetch(cifar_from(site.url), tmp_path)

    def test_a_download_that_is_broken_off_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def dies(self: object, size: int) -> None:
            assert any((tmp_path / PARTIAL).iterdir()), "it has begun"
            raise Killed

        with serving({"cifar-10-binary.tar.gz": ARCHIVE}) as site:
            with monkeypatch.context() as patch:
                patch.setattr("adabest.data.download._Bar.update", dies)
                with pytest.raises(Killed):
                    fetch(cifar_from(site.url), tmp_path)
            assert below(tmp_path) == {LOCK}
            assert fetch(cifar_from(site.url), tmp_path).path.read_bytes() == ARCHIVE

    @pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
    def test_a_killed_download_leaves_nothing_where_data_are_looked_for(self, tmp_path: Path) -> None:
        script = "import sys, test_download as t; t.fetch(t.cifar_from(sys.argv[1]), t.Path(sys.argv[2]))"
        with serving({"cifar-10-binary.tar.gz": ARCHIVE}) as site:
            site.stops_after = len(ARCHIVE) // 2
            with subprocess.Popen(
                [sys.executable, "-c", script, site.url, str(tmp_path)],
                cwd=Path(__file__).parent,
                env={**os.environ, "PYTHONPATH": str(HELPERS)},
            ) as process:
                assert site.silent.wait(60)
                process.send_signal(signal.SIGKILL)
                process.wait()
            left = below(tmp_path)
            assert left > {LOCK}
            assert all(name.startswith(PARTIAL) for name in left - {LOCK}), "nothing lies where data are looked for"
            site.goes_on.set()
            site.stops_after = None
            assert fetch(cifar_from(site.url), tmp_path).path.read_bytes() == ARCHIVE
        assert below(tmp_path) == {LOCK, "cifar-10-binary.tar.gz"}, "and what was left is gone"


class TestFetchingAhead:
    def test_data_sets_are_fetched_by_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with serving(GZIPPED) as site:
            monkeypatch.setitem(OFFICIAL, "mnist", mnist_from(site.url))
            listings = {listing.name: listing for listing in adabest.datasets(str(tmp_path), fetch=["mnist"])}
            adabest.datasets(str(tmp_path), fetch=["mnist"])
            assert len(site.requests) == 4
        assert listings["mnist"].where == tmp_path / "MNIST" / "raw"
        assert listings["mnist"].bytes_on_disk == sum(map(len, GZIPPED.values()))
        assert not listings["cifar10"].here

    def test_an_unknown_name_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no data set 'cifar' to be downloaded; did you mean 'cifar10'"):
            adabest.datasets(str(tmp_path), fetch=["mnist", "cifar"])
        with pytest.raises(InputError, match="no data set 'digits' to be downloaded"):
            adabest.datasets(str(tmp_path), fetch=["digits"])
        assert not below(tmp_path)
