"""
Compiles `modeling_star/kernels/cpu.cpp` into a wheel, where there is a C++ compiler and Linux.

Such a wheel has a library for each level of instructions and the tag of the platform, `py3-none-linux_x86_64`; they
are called through ctypes, so that one wheel serves every Python. Without a compiler, or with
`MODELING_STAR_CPU_KERNELS=0`, it is `py3-none-any`, and the code is compiled when it is first used. With
`MODELING_STAR_CPU_KERNELS=1` a build that cannot compile fails.
"""

import os
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    """The hook of the target `wheel`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the libraries and the tag to what is built; an editable installation gets none."""
        setting = os.environ.get("MODELING_STAR_CPU_KERNELS", "auto")
        if version == "editable" or setting == "0" or sys.platform != "linux":
            return
        sys.path.insert(0, self.root)
        from modeling_star.kernels import cpu_library

        self.folder = tempfile.TemporaryDirectory()
        try:
            with ThreadPoolExecutor() as pool:
                names = cpu_library.levels_of_machine()
                built = list(pool.map(lambda name: cpu_library.build_in(Path(self.folder.name), name), names))
        except cpu_library.UnavailableError as error:
            if setting == "1":
                raise
            self.app.display_warning(f"The wheel has no compiled layers: {error}")
            return
        build_data["force_include"].update({str(path): f"modeling_star/kernels/{path.name}" for path in built})
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
