#include <tenfold/version.hpp>

namespace tenfold {

std::string_view version() noexcept { return TENFOLD_VERSION_STRING; }

}  // namespace tenfold
