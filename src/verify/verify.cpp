#include <tenfold/error.hpp>
#include <tenfold/io.hpp>

#include <string>
#include <utility>

#include "io/registry.hpp"
#include "io/sparse_check.hpp"
#include "os/fs/unreplaced.hpp"
#include "verify/rows.hpp"

namespace tenfold {

using namespace detail;
namespace {

/// Bytes can be as they were written and still be no sparse tensor (indices beyond its shape), or
/// no dictionary.
void check_tree(const formats::Format& format, const Path& path, VerifyReport& report) {
  try {
    const TensorDict tree = format.open(path, {});
    require_sound_sparse_nodes(tree, path.string());
    for (Problem& problem : check_rows_of(tree)) report.problems.push_back(std::move(problem));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) throw;
    std::string what = error.what();
    const std::string prefix = path.string() + ": ";
    if (what.starts_with(prefix)) what.erase(0, prefix.size());
    constexpr std::string_view kPart = ": sparse tensor";
    const std::size_t end = what.find(kPart);
    const bool has_part = end != std::string::npos;
    report.problems.push_back({path.string(), has_part ? what.substr(0, end) : "tree",
                               has_part ? what.substr(end + 2) : what});
  }
}

}  // namespace

VerifyReport verify(const Path& path, const VerifyOptions& options) {
  return os::read_unreplaced(path, [&] {
    const formats::Format& format = format_of_content(path, options.format);
    VerifyReport report =
        format.verify(path, {.num_threads = options.num_threads, .monitor = options.monitor});
    if (report.ok()) check_tree(format, path, report);
    return report;
  });
}

}  // namespace tenfold
