"""Source as it would be with an edit, put into a running port: nothing on disk changes, and it can be taken back.

What a function's body says is exchanged in place (its code object), so that whoever holds the function sees it. What
runs while a module is imported (constants, defaults, bodies of classes) takes a new import of all of the port.
"""

import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any

from stages.places import ROOT

PACKAGE = "port"


class _Loader(SourceFileLoader):
    """Compiles a text in place of the file's, and keeps no bytecode of it."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.get_filename(fullname), "exec", dont_inherit=True)


@dataclass
class Texts(importlib.abc.MetaPathFinder):
    """Finds modules of the port whose text in memory is another than that of their file.

    Attributes:
        texts: By path from the checkout's root.
    """

    texts: dict[str, str] = field(default_factory=dict)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """`importlib`'s question."""
        if fullname.partition(".")[0] != PACKAGE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            text = self.texts.get(spec.origin.removeprefix(f"{ROOT}/"))
            if text is not None:
                spec.loader = _Loader(fullname, spec.origin, text)
        return spec

    def of(self, file: str) -> str:
        """A file's text, as it counts here."""
        return self.texts[file] if file in self.texts else (ROOT / file).read_text(encoding="utf-8")


class _Compiled:
    """What `mx.compile` gives, made anew when asked: a compiled function keeps what its code once said."""

    def __init__(self, original: Callable[..., Any], function: Callable[..., Any], told: dict[str, Any]) -> None:
        self._original, self._function, self._told = original, function, told
        self.renew()
        KNOWN.add(self)

    def renew(self) -> None:
        """Forget what was traced."""
        function = self._function

        # Traces are kept by the function's address: only another function is traced anew.
        def again(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        self._inner = self._original(again, **self._told)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._inner(*args, **kwargs)


KNOWN: "weakref.WeakSet[_Compiled]" = weakref.WeakSet()  # everything compiled that is still in use


def renewing_compiled() -> None:
    """From now on what MLX compiles in this process can be renewed."""
    framework: Any = importlib.import_module("mlx.core")
    original = framework.compile

    def compiled(function: Callable[..., Any], **told: Any) -> _Compiled:
        return _Compiled(original, function, told)

    framework.compile = compiled


@dataclass
class Port:
    """The port in this process: imported with the texts in memory, exchangeable piece by piece."""

    finder: Texts
    _functions: dict[tuple[str, str, int], list[FunctionType]] = field(default_factory=dict)
    _caches: list[Any] = field(default_factory=list)
    _swapped: list[tuple[FunctionType, CodeType]] = field(default_factory=list)
    _foreign: bool = False  # whether what is imported is not the port as it is

    def reload(self, load: Callable[[], object], changed: Mapping[str, str] | None = None) -> None:
        """Import the port anew, with these texts changed: `load` does the importing."""
        for name in [one for one in sys.modules if one.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        before = dict(self.finder.texts)
        self.finder.texts |= changed or {}
        self._foreign = bool(changed)
        self._swapped.clear()
        try:
            load()
        finally:
            self.finder.texts = before
        self._scan()

    def _scan(self) -> None:
        self._functions, self._caches = {}, []
        for one in gc.get_objects():
            if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(f"{ROOT}/{PACKAGE}/"):
                if sys.modules.get(one.__module__) is None or vars(sys.modules[one.__module__]) is not one.__globals__:
                    continue  # of an import that was dropped
                code = one.__code__
                self._functions.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(one)
            elif isinstance(one, functools._lru_cache_wrapper) and one.__module__.startswith(f"{PACKAGE}."):  # noqa: SLF001
                self._caches.append(one)

    def change(self, load: Callable[[], object], file: str, text: str, *, imported: bool) -> bool:
        """Put a file's changed text into force, as far as it is another; False where that changes nothing that runs.

        Args:
            load: Imports the port.
            file: From the checkout's root.
            text: Of the whole file.
            imported: Whether what changes runs on import.

        Raises:
            SyntaxError: the text is no Python.
        """
        path = str(ROOT / file)
        module = compile(text, path, "exec", dont_inherit=True)
        if imported:
            self.reload(load, {file: text})
            return True
        self.restore(load)
        before = compile(self.finder.of(file), path, "exec", dont_inherit=True)
        # By order among those of one name: an edit may add or take away lines.
        pairs = zip(_by_name(before), _by_name(module), strict=False)
        for (name, old), (other, new) in pairs:
            if name != other:
                break
            if old == new:
                continue
            for function in self._functions.get((path, name, old.co_firstlineno), ()):
                if len(function.__code__.co_freevars) == len(new.co_freevars):
                    self._swapped.append((function, function.__code__))
                    function.__code__ = new
        self.forget()
        return bool(self._swapped)

    def restore(self, load: Callable[[], object]) -> None:
        """Take back what was changed last."""
        for function, code in self._swapped:
            function.__code__ = code
        self._swapped.clear()
        if self._foreign:
            self.reload(load)
        self.forget()

    def forget(self) -> None:
        """Empty the caches of functions, and what was compiled."""
        for one in self._caches:
            one.cache_clear()
        for compiled in list(KNOWN):
            compiled.renew()


def _by_name(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """All functions in a module's code, by qualified name, in order."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one.co_qualname, one
            yield from _by_name(one)
