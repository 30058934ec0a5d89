"""The hub: the tables of stages, the gates, the recorder, the judge and the command line."""
