#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tenfold::base {

/// Encodes as base64 with padding (RFC 4648): three bytes to four characters.
std::string base64(std::string_view bytes);

/// Decodes `text`. Empty optional unless base64() could have produced it.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tenfold::base
