"""Builds the program of tests/consumer against the Conan package, and runs it."""

from pathlib import Path

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class TenfoldTest(ConanFile):
    """Tests the package with a program that finds tenfold by find_package() only."""

    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"

    def requirements(self):
        """Declares the package under test."""
        self.requires(self.tested_reference_str)

    def layout(self):
        """Uses the folder layout of CMake projects."""
        cmake_layout(self)

    def build(self):
        """Configures and builds with CMake."""
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        """Runs the program, unless it was built for another architecture."""
        if can_run(self):
            self.run(Path(self.cpp.build.bindir) / "consumer", env="conanrun")
