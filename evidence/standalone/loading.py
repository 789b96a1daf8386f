"""Imports modules from texts. The single-file verifier begins with this module, and holds its sources."""

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType


class Sources(MetaPathFinder, ExecutionLoader):
    """Finds modules among ``files``, by their paths, before any installed module."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module of this name; None if it is not among the files."""
        for file, package in ((f"{name.replace('.', '/')}.py", False), (f"{name.replace('.', '/')}/__init__.py", True)):
            if file in self._files:
                spec = spec_from_loader(name, self, origin=file, is_package=package)
                if spec is not None:
                    spec.has_location = True
                return spec
        return None

    def get_filename(self, fullname: str) -> str:
        """The path of a module."""
        spec = self.find_spec(fullname)
        if spec is None or spec.origin is None:
            raise ImportError(f"{fullname} is not in this file")
        return spec.origin

    def get_source(self, fullname: str) -> str:
        """The text of a module."""
        return self._files[self.get_filename(fullname)]

    def get_data(self, path: str) -> bytes:
        """The text with this path. ``OSError`` if there is none: nothing is read from the disk."""
        if path not in self._files:
            raise OSError(f"{path} is not in this file")
        return self._files[path].encode()


def load(files: Mapping[str, str]) -> None:
    """Import from these files from now on."""
    sys.meta_path.insert(0, Sources(files))
