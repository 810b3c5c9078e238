"""Conan recipe of the C++ library, built from this repository (see packaging/README.md)."""

import re
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy

REPOSITORY = Path(__file__).resolve().parents[2]


class TenfoldConan(ConanFile):
    """A package of the static or shared library and, with the option `cli`, of the program."""

    name = "tenfold"
    license = "Apache-2.0"
    description = "PyTorch's data on disk as memory-mapped trees of tensors, without pickle"
    topics = ("pytorch", "tensors", "safetensors", "memory-mapped")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"cli": [True, False], "shared": [True, False]}  # noqa: RUF012
    default_options = {  # noqa: RUF012
        "cli": False,
        "shared": False,
        "fmt/*:header_only": True,
    }

    def set_version(self):
        """Reads the version from include/tenfold/version.hpp."""
        text = (REPOSITORY / "include/tenfold/version.hpp").read_text(encoding="utf-8")
        self.version = re.search(r'TENFOLD_VERSION_STRING "([0-9.]+)"', text)[1]

    def export_sources(self):
        """Copies the files of the repository that a build needs."""
        for name in ("CMakeLists.txt", "LICENSE", "NOTICE"):
            copy(self, name, REPOSITORY, self.export_sources_folder)
        for folder in ("cmake", "include", "src", "cli", "licenses"):
            copy(self, f"{folder}/*", REPOSITORY, self.export_sources_folder)

    def validate(self):
        """Refuses systems other than Linux, and C++ standards before C++20."""
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("tenfold runs on Linux only")
        check_min_cppstd(self, 20)

    def requirements(self):
        """Declares the libraries of tenfold. Consumers do not see the header-only libraries."""
        self.requires("fmt/[>=9]", visible=False)
        self.requires("xxhash/[>=0.8]", visible=False)
        self.requires("libdeflate/[>=1.14]")
        self.requires("zlib/[>=1.2.11 <2]")
        self.requires("zstd/[>=1.5 <2]")
        self.requires("bzip2/[>=1.0.8 <2]")
        self.requires("xz_utils/[>=5.2 <6]")
        if self.options.cli:
            self.requires("cli11/[>=2.1 <3]", visible=False)

    def layout(self):
        """Uses the folder layout of CMake projects."""
        cmake_layout(self)

    def generate(self):
        """Configures CMake to use libraries from Conan, not pinned sources that CMake downloads."""
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["TENFOLD_DEPS"] = "system"
        toolchain.cache_variables["TENFOLD_CLI"] = bool(self.options.cli)
        toolchain.cache_variables["TENFOLD_INSTALL"] = True
        for name in ("PYTHON", "TESTS", "WERROR"):
            toolchain.cache_variables[f"TENFOLD_{name}"] = False
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        """Configures and builds with CMake."""
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        """Installs the library, and copies the licenses of tenfold and of the libraries it uses."""
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, Path(self.package_folder) / "licenses")
        copy(self, "NOTICE", self.source_folder, Path(self.package_folder) / "licenses")
        copy(
            *(self, "*", Path(self.source_folder) / "licenses"),
            Path(self.package_folder) / "licenses",
        )

    def package_info(self):
        """Describes the package for CMake (target tenfold::tenfold) and pkg-config."""
        self.cpp_info.libs = ["tenfold"]
        if self.options.shared:
            self.cpp_info.defines = ["TENFOLD_SHARED"]
        self.cpp_info.set_property("cmake_file_name", "tenfold")
        self.cpp_info.set_property("cmake_target_name", "tenfold::tenfold")
        self.cpp_info.set_property("pkg_config_name", "tenfold")
        self.cpp_info.system_libs = ["pthread"]
