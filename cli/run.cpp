#include "run.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <tenfold/error.hpp>
#include <tenfold/version.hpp>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>

#include "commands.hpp"
#include "interrupt.hpp"
#include "output.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

constexpr int kExitFailure = 2;
constexpr int kExitBrokenPipe = 141;  // as a shell shows a death by SIGPIPE

constexpr const char* kDescription =
    "PyTorch's data on disk as memory-mapped trees of tensors, without pickle.\n"
    "Every command reads every format: memmap folders, safetensors, .pt, checkpoints, npy.\n"
    "KEY is a dotted name, all below it included, or a glob over dotted names: 'model.*.bias'.";

constexpr const char* kFooter =
    "Exit status: 0 done, 1 a problem was found, 2 usage or failure.\n"
    "`tenfold COMMAND --help` tells more about a command.";

/// Lines of a message are kept, everything else that could fool a terminal is escaped.
void print_error(std::string_view message) {
  std::string text;
  while (true) {
    const std::size_t end = message.find('\n');
    text += printable(message.substr(0, end)) + '\n';
    if (end == std::string_view::npos) break;
    message.remove_prefix(end + 1);
  }
  fmt::print(stderr, "tenfold: {}", text);
}

int fail(const Error& error) {
  if (error.code() == ErrorCode::io && error.system_errno() == ECANCELED && interrupted()) {
    return kExitInterrupted;
  }
  if (error.code() == ErrorCode::io && error.system_errno() == EPIPE) return kExitBrokenPipe;
  print_error(error.what());
  return kExitFailure;
}

int carry_out(const Chosen& chosen) {
  const InterruptGuard guard;
  try {
    Output out;
    const int status = chosen.command(out);
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

int print_and_return(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : kExitFailure;
}

/// Names in columns as wide as they need, so that the help fits 80.
void set_widths(CLI::App& app) {
  app.get_formatter()->column_width(17);
  for (CLI::App* command : app.get_subcommands(std::function<bool(CLI::App*)>())) {
    auto formatter = std::make_shared<CLI::Formatter>();
    formatter->column_width(27);
    command->formatter(formatter);
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
  add_bench(app, chosen);
  app.footer(kFooter);  // now, so that no command inherits it
  set_widths(app);
  if (argc < 2) {
    std::fputs(app.help().c_str(), stderr);
    return kExitFailure;
  }
  try {
    app.require_subcommand(1);
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto parsed = app.get_subcommands();
    return print_and_return(parsed.empty() ? app.help() : parsed.front()->help("tenfold"));
  } catch (const CLI::CallForVersion& version_text) {
    return print_and_return(std::string(version_text.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    const auto parsed = app.get_subcommands();
    const std::string command = parsed.empty() ? "" : " " + parsed.front()->get_name();
    print_error(std::string(error.what()) + "; see `tenfold" + command + " --help`");
    return kExitFailure;
  }
  return carry_out(chosen);
}

}  // namespace

int run(int argc, char** argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    print_error(error.what());
  }
  return kExitFailure;
}

}  // namespace tenfold::cli
