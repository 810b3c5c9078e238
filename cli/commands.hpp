#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>
#include <tenfold/io.hpp>

#include "output.hpp"

namespace CLI {
class App;
}

namespace tenfold::cli {

/// What the parser leaves for run(): the command to carry out. It prints into `Output` and returns
/// the exit status, 0 or 1; failures are thrown.
struct Chosen {
  std::function<int(Output&)> command;
};

/// Each adds one command with its options. Its parse stores what to do in `chosen`, which outlives
/// the parser.
void add_ls(CLI::App& app, Chosen& chosen);
void add_tree(CLI::App& app, Chosen& chosen);
void add_stat(CLI::App& app, Chosen& chosen);
void add_head(CLI::App& app, Chosen& chosen);
void add_scan(CLI::App& app, Chosen& chosen);
void add_verify(CLI::App& app, Chosen& chosen);
void add_convert(CLI::App& app, Chosen& chosen);
void add_ingest(CLI::App& app, Chosen& chosen);
void add_compact(CLI::App& app, Chosen& chosen);
void add_diff(CLI::App& app, Chosen& chosen);
void add_checkpoints(CLI::App& app, Chosen& chosen);
void add_bench(CLI::App& app, Chosen& chosen);

/// KEY arguments as the library takes them: dotted names or globs.
Keys key_paths(const std::vector<std::string>& keys);

/// An object of JSON from its members, in order.
Value object(std::vector<std::pair<std::string, Value>> members);

/// Calls `visit` for each entry of a node, or `fail` for one that cannot be read, and goes on.
void for_each_readable(
    const TensorDict& node,
    const std::function<void(const std::string& key, const TensorDict::Item& item)>& visit,
    const std::function<void(const std::string& key, const Error& error)>& fail);

/// "float32 [3, 4]" for messages and trees; nested tensors say so.
std::string leaf_text(const Leaf& leaf);

}  // namespace tenfold::cli
