"""The program that runs a pack's nodes, one process per environment and session.

Three lanes: what must be answered while a node computes (cancel, ping, census) runs where frames
are read and runs no pack code; nodes run on the main thread; input types, validation and routes run
on the side lane's thread. The one object of the process is the Worker that `main` makes.
"""
