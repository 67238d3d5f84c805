"""A kernel of a module and its launch: `kernel[grid, block, shared_bytes](...)`."""
import functools

from . import gpu, hints, launch, memory
from .arguments import arrays
from .arguments import ArgumentError, bind
from .launch.library import Entry, Library
from .sanitize import sanitize
from .sources import template_arguments, tidy_arguments
from .text.signature import KernelText


class Kernel:
    """A kernel of a module, or an instance of a template kernel; `[grid, block]` makes it a launch."""

    def __init__(self, module, name: str, instance: str = "", sanitized: bool = False):
        self.module, self.name, self.instance, self.sanitized = module, name, instance, sanitized

    error = None          # a kernel whose cell does not compile has one
    shared_limit = 48 << 10     # set it for more dynamic shared memory, as cudaFuncSetAttribute does
    cluster_limit = 8           # up to 16, likewise

    @property
    def source(self) -> str:
        """The text that the kernel was compiled from, the whole file or cell."""
        return self.module.source

    @property
    def __name__(self) -> str:
        return self.name + self.instance

    def __getitem__(self, configuration):
        """`[grid, block]`, and of shared_bytes and cluster what is wanted; a string names an instance: `["64, 32"]`."""
        if isinstance(configuration, str):
            return Kernel(self.module, self.name, tidy_arguments(configuration), self.sanitized)
        if not isinstance(configuration, tuple) or len(configuration) not in (2, 3, 4):
            raise ArgumentError(f"{self.__name__} is launched as {self.__name__}[grid, block](...) or "
                                f"[grid, block, shared_bytes](...), got [{configuration!r}]")
        grid, block, shared, cluster = (*configuration, *(0, None)[len(configuration) - 2:])
        return Launch(self, _three("grid", grid), _three("block", block),
                      _whole("shared_bytes", shared), _three("cluster", cluster) if cluster else (0, 0, 0))

    def __call__(self, *arguments, **named):
        raise ArgumentError(f"{self.__name__} needs a grid and a block: {self.__name__}[grid, block](...)")

    def __repr__(self):
        kernel = self.module._named(self.name)[0]
        wanted = ", ".join(f"{t} {n}" for t, n in zip(kernel.types, kernel.parameters))
        return f"<kernel {self.__name__}({wanted}) of {self.module.name}>"

    def _texts(self) -> list[KernelText]:
        """The kernels that this name may mean: more than one where it is overloaded or chosen by an #if."""
        found = self.module._named(self.name)
        instance = self.instance.strip("<> ")
        count = len(template_arguments(instance)) if self.instance else 0
        for kernel in found:
            template = f"{kernel.name} is a template over <{', '.join(kernel.template)}>"
            example = f'module["{kernel.name}<{", ".join("..." for _ in kernel.template)}>"]'
            if kernel.template and not self.instance and kernel.required:
                raise ArgumentError(f"{template}: name an instance, {example}")
            if kernel.template and count < kernel.required:
                raise ArgumentError(f"{template}: {self.__name__} gives {count} of its {kernel.required} "
                                    "arguments")
            if kernel.template and count > len(kernel.template) and "..." not in template:
                raise ArgumentError(f"{template}: {self.__name__} gives {count} arguments")
            if not kernel.template and self.instance:
                raise ArgumentError(f"{kernel.name} is not a template; launch it as {kernel.name}[grid, "
                                    "block](...)")
        return found


class Launch:
    """A kernel with its grid, block and dynamic shared memory; calling it runs it."""

    def __init__(self, kernel: Kernel, grid: tuple, block: tuple, shared_bytes: int, cluster: tuple):
        self.kernel, self.grid, self.block = kernel, grid, block
        self.shared_bytes, self.cluster = shared_bytes, cluster

    def __call__(self, *arguments, **named) -> None:
        given = [*arguments, *named.values()]
        device = next((a.device for a in given if arrays.on_gpu(a)), None)
        if launch.mode() != "plain":       # counts and checks are made on the CPU, whatever the machine
            device = None
        if device is not None:
            self._run(arguments, named, device)
        elif self.kernel.sanitized and launch.mode() == "plain":
            with sanitize():
                self._run(arguments, named, None)
        else:
            self._run(arguments, named, None)

    def _run(self, given: tuple, named: dict, device) -> None:
        module, name = self.kernel.module, self.kernel.__name__
        traced = launch.mode() != "plain"
        faults = []
        for text in self.kernel._texts():
            instance = (self.kernel.instance or "<>") if text.template else ""
            library = (module._library_gpu(text, instance, device) if device is not None
                       else module._library(traced, text, instance))
            entry = library.entries.get((text, instance))
            if entry is None:              # behind an #if that is not taken
                continue
            try:
                values = bind(name, entry.parameters, given, named)
            except ArgumentError as fault:
                faults.append(fault)
                continue
            if device is not None and self.cluster[0]:
                raise ArgumentError(f"{name}: on a GPU the size of a cluster is said by __cluster_dims__")
            if device is not None:
                gpu.run(entry, name, self.grid, self.block, self.shared_bytes, values, device)
            else:
                if not traced:
                    again = functools.partial(self._run, given, named, None)
                    hints.first_launch(self.kernel, library.path, values, again)
                self._run_here(entry, library, values)
            if device is not None or not traced:
                memory.mark_results(entry.parameters, values)
            return
        raise faults[0] if faults else ArgumentError(f"{name} is behind an #if that is not compiled")

    def _run_here(self, entry: Entry, library: Library, values: list) -> None:
        module = self.kernel.module
        module._continue_in(library)
        here = arrays.CpuCopies(values)
        launch.run(entry=entry.call, kernel=self.kernel.__name__, grid=self.grid, block=self.block,
                   shared_bytes=self.shared_bytes, params=entry.parameters, values=here.values,
                   library=library.path, source=module.source, source_name=module.name,
                   launch_bounds=entry.launch_bounds, shared_limit=self.kernel.shared_limit,
                   cluster=(self.cluster, self.kernel.cluster_limit),
                   files={file.path.name: file.text for file in module._files[1:]}, defines=module._define)
        here.copy_back(entry.parameters)


def _three(what: str, size) -> tuple[int, int, int]:
    sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    if not 1 <= len(sizes) <= 3:
        raise ArgumentError(f"{what} has 1 to 3 sizes, got {size!r}")
    return tuple(_whole(what, s) for s in (*sizes, 1, 1)[:3])


def _whole(what: str, value) -> int:
    try:
        whole = value.__index__()
    except (AttributeError, TypeError):
        raise ArgumentError(f"{what} is made of whole numbers, got {value!r}"
                            + ("; use // to divide" if isinstance(value, float) else "")) from None
    if whole < 0 or whole >= 2**32:
        raise ArgumentError(f"{what} cannot be {whole}")
    return whole
