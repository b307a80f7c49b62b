"""Real federations: the algorithms of the package between one server and nodes that have the clients, over Flower.

The server runs the ordinary loop over rounds (``server``), with a client side and an engine that ask nodes
(``node_clients``, ``node_engine``). A node trains its clients with the reference engine (``node``) and keeps their
states in files of its own (``state_files``). Between them travel parcels (``parcels``) with orders and answers
(``orders``), over a ``network``: Flower's (``grid``), or none at all (``rehearsal``).

What a user declares is a ``project``; ``adabest new-flower-app`` writes one to edit (``new_project``, ``template``).
Only ``apps`` and ``grid`` import Flower.
"""
