#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "common.hpp"
#include "gil.hpp"
#include "run.hpp"

namespace tenfold::python {

using namespace nb::literals;

void bind_cli(nb::module_& module) {
  module.def(
      "run_cli",
      [](const nb::list& arguments) {
        std::vector<std::string> texts;
        for (const nb::handle argument : arguments) texts.push_back(path_from(argument).string());
        std::vector<char*> argv;
        for (std::string& argument : texts) argv.push_back(argument.data());
        argv.push_back(nullptr);
        const GilRelease released;
        return cli::run(static_cast<int>(texts.size()), argv.data());
      },
      "argv"_a, nb::sig("def run_cli(argv: list[str]) -> int"),
      "Runs the command line program; argv[0] is its name. Returns the exit status.");
}

}  // namespace tenfold::python
