"""The subcommands of ``pinchpoint bench``."""
