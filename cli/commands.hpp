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

/// The command that the parser selected. The function prints to `Output` and returns the exit
/// status, 0 or 1. It reports errors by exceptions.
struct Chosen {
  std::function<int(Output&)> command;
};

/// Each function adds one command with its options to the parser. If the parser finds the command,
/// it stores the function to run in `chosen`, which must outlive the parser.
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

/// Converts KEY arguments, dotted names or globs, to Keys. Without arguments, Keys selects
/// everything.
Keys key_paths(const std::vector<std::string>& keys);

/// A JSON object with these members, in this order.
Value object(std::vector<std::pair<std::string, Value>> members);

/// Calls `visit` for each entry of a node, or `fail` for an entry that cannot be read.
void for_each_readable(
    const TensorDict& node,
    const std::function<void(const std::string& key, const TensorDict::Item& item)>& visit,
    const std::function<void(const std::string& key, const Error& error)>& fail);

/// The dtype and shape of a leaf: "float32 [3, 4]". For a nested tensor "float32 nested [3, 2]": 3
/// components of 2 dimensions.
std::string leaf_text(const Leaf& leaf);

}  // namespace tenfold::cli
