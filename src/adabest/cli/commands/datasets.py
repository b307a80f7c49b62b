"""``adabest datasets``."""

from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from adabest.cli.exit_codes import DONE
from adabest.cli.parser import Action, Field
from adabest.cli.run_options import data_dir_field


def fields(given: Sequence[str]) -> list[Field]:
    """Where data lie, and which data sets are to be downloaded."""
    hint = tyro.conf.arg(help="Data sets to download first, if they aren't there.", help_behavior_hint="")
    return [*data_dir_field(), Field("fetch", Annotated[tuple[str, ...], hint], ())]


def action() -> Action:
    """Imports what the command needs; the result lists the data sets."""
    from adabest.cli.output import console
    from adabest.data.listing import datasets
    from adabest.data.location import data_folder
    from adabest.report.table import datasets_table

    def act(arguments: dict[str, Any]) -> int:
        listings = datasets(arguments["data_dir"], fetch=arguments["fetch"])
        console().print(datasets_table(listings).rich())
        for listing in listings:
            for words in [str(listing.where)] if listing.where else listing.lacks:
                console().print(f"{listing.name}: {words}")
        console().print(f"Data folder: {data_folder(arguments['data_dir'])}")
        return DONE

    return act
