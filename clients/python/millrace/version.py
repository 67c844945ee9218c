"""The version of the package, which is that of the server it was released with."""

__version__ = "0.0.0.dev0"
