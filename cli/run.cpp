#include "run.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <tenfold/error.hpp>
#include <tenfold/version.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "interrupt.hpp"
#include "output.hpp"
#include "terminal.hpp"
#include "text.hpp"
#include "warnings.hpp"

namespace tenfold::cli {
namespace {

constexpr int kExitFailure = 2;
constexpr int kExitBrokenPipe = 141;  // as shells report it for a program that SIGPIPE ended

constexpr const char* kDescription =
    "PyTorch's data on disk as memory-mapped trees of tensors, without pickle.\n"
    "Commands for tensors read every format: memmap folders, safetensors, .pt, ...\n"
    "KEY is a dotted name with everything below it, or a glob like 'model.*.bias'.";

constexpr const char* kFooter =
    "Exit status: 0 done, 1 problem or difference found, 2 usage error or failure.\n"
    "`tenfold help COMMAND` describes a command.";

/// Prints a message as a single line, even if names in it contain line breaks.
void print_error(std::string_view message) { write_error("tenfold: " + printable(message) + "\n"); }

int fail(const Error& error) {
  if (error.code() == ErrorCode::io && error.system_errno() == ECANCELED && interrupted()) {
    return kExitInterrupted;
  }
  if (error.code() == ErrorCode::io && error.system_errno() == EPIPE) return kExitBrokenPipe;
  print_error(error.what());
  return kExitFailure;
}

int execute(const Chosen& chosen) {
  const InterruptGuard guard;
  try {
    Output out;
    const int status = [&] {
      const WarningGuard warnings;
      return chosen.command(out);
    }();
    throw_if_interrupted();
    out.flush();
    return status;
  } catch (const Interrupted&) {
    return kExitInterrupted;
  } catch (const Error& error) {
    return fail(error);
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
  } catch (const std::exception& error) {
    print_error(error.what());
  }
  return kExitFailure;
}

/// A command that prints `text`.
Chosen printing(std::string text) {
  return {[text = std::move(text)](Output& out) {
    out.text(text);
    return 0;
  }};
}

/// Sets column widths that fit the longest names, so that the help fits 80 columns.
void set_widths(CLI::App& app) {
  app.get_formatter()->column_width(17);
  for (CLI::App* command : app.get_subcommands(std::function<bool(CLI::App*)>())) {
    auto formatter = std::make_shared<CLI::Formatter>();
    formatter->column_width(27);
    command->formatter(formatter);
  }
}

/// Returns the error message if `name`, the first argument, is neither a command nor an option;
/// otherwise an empty string.
std::string problem_of_command(CLI::App& app, const std::string& name) {
  if (name.starts_with('-')) return {};
  std::string near;
  std::size_t least = 3;  // do not suggest a command at this edit distance or more
  for (const CLI::App* command : app.get_subcommands(std::function<bool(CLI::App*)>())) {
    if (command->get_name() == name) return {};
    const std::size_t distance = edit_distance(name, command->get_name());
    if (distance >= least) continue;
    least = distance;
    near = command->get_name();
  }
  return "unknown command \"" + name + "\"" +
         (near.empty() ? "" : "; did you mean \"" + near + "\"?") + "; see `tenfold --help`";
}

/// CLI11 splits the argument "[a,b]" of an option that takes several values. A final NUL, which no
/// argument has, prevents that.
void mark_brackets(std::vector<std::string>& arguments) {
  for (std::string& argument : arguments) {
    if (argument.ends_with(']')) argument += '\0';
  }
}

/// Makes all options remove the NUL of mark_brackets() before they use the argument.
void remove_marks(CLI::App& app) {
  const auto remove = [](std::string& argument) -> std::string {
    if (argument.ends_with('\0')) argument.pop_back();
    return {};
  };
  for (CLI::App* command : app.get_subcommands(std::function<bool(CLI::App*)>())) {
    for (CLI::Option* option : command->get_options()) {
      if (option->get_items_expected_max() != 0) {
        option->transform(CLI::Validator(remove, "", "brackets"));
      }
    }
  }
}

int parse_and_run(int argc, char** argv) {
  CLI::App app(kDescription, "tenfold");
  Chosen chosen;
  app.set_version_flag("--version", "tenfold " + std::string(version()));
  add_ls(app, chosen);
  add_tree(app, chosen);
  add_stat(app, chosen);
  add_head(app, chosen);
  add_scan(app, chosen);
  add_verify(app, chosen);
  add_diff(app, chosen);
  add_convert(app, chosen);
  add_ingest(app, chosen);
  add_compact(app, chosen);
  add_checkpoints(app, chosen);
  add_bench(app, chosen);
  app.footer(kFooter);  // set it only now, so that commands do not inherit it
  set_widths(app);
  remove_marks(app);
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (arguments.empty()) {
    write_error(app.help());
    return kExitFailure;
  }
  if (arguments.front() == "help") {  // `help ls` is `ls --help`
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  if (const std::string problem = problem_of_command(app, arguments.front()); !problem.empty()) {
    print_error(problem);
    return kExitFailure;
  }
  mark_brackets(arguments);
  std::reverse(arguments.begin(), arguments.end());  // in the order that the parser expects
  try {
    app.require_subcommand(1);
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    const auto parsed = app.get_subcommands();
    chosen = printing(parsed.empty() ? app.help() : parsed.front()->help("tenfold"));
  } catch (const CLI::CallForVersion& version_text) {
    chosen = printing(std::string(version_text.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    const auto parsed = app.get_subcommands();
    const std::string command = parsed.empty() ? "" : " " + parsed.front()->get_name();
    print_error(std::string(error.what()) + "; see `tenfold" + command + " --help`");
    return kExitFailure;
  }
  return execute(chosen);
}

}  // namespace

int run(int argc, char** argv) {
  reserve_standard_streams();
  try {
    return parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    print_error(error.what());
  }
  return kExitFailure;
}

}  // namespace tenfold::cli
