"""Builds and runs the program of tests/consumer against the package."""

from pathlib import Path

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class TenfoldTest(ConanFile):
    """A program that knows tenfold by its package alone."""

    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"

    def requirements(self):
        """The package under test."""
        self.requires(self.tested_reference_str)

    def layout(self):
        """CMake's."""
        cmake_layout(self)

    def build(self):
        """Configures and builds."""
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        """Runs the program."""
        if can_run(self):
            self.run(Path(self.cpp.build.bindir) / "consumer", env="conanrun")
