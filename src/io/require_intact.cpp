#include "io/require_intact.hpp"

#include <optional>

#include <tenfold/inspect.hpp>

#include "formats/shared/problem.hpp"
#include "formats/shared/verify_filter.hpp"

namespace tenfold {

using namespace detail;

void require_intact(const formats::Format& format, const Path& path, const Keys& keys,
                    const Keys& exclude, formats::VerifyRequest request) {
  std::optional<formats::VerifyFilter> filter;
  if (keys.given() || !exclude.paths().empty()) {
    const TensorDict whole = format.open(path, {.mode = Mode::read});
    request.filter = &filter.emplace(whole, select(whole, keys, exclude));
  }
  const VerifyReport report = format.verify(path, request);
  if (!report.ok()) throw formats::error_of(report);
}

}  // namespace tenfold
