#include <tenfold/error.hpp>
#include <tenfold/io.hpp>

#include <string>

#include "io/registry.hpp"
#include "io/sparse_check.hpp"

namespace tenfold {
namespace {

/// Bytes can be as they were written and still be no sparse tensor: indices beyond its shape.
void check_sparse(const Format& format, const Path& path, VerifyReport& report) {
  try {
    require_sound_sparse_nodes(format.open(path, {}), path.string());
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
  const Format& format = format_of_content(path, options.format);
  VerifyReport report =
      format.verify(path, {.num_threads = options.num_threads, .monitor = options.monitor});
  if (report.ok()) check_sparse(format, path, report);
  return report;
}

}  // namespace tenfold
