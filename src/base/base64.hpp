#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tenfold::base {

/// Encodes as base64 with padding (RFC 4648): three bytes to four characters.
std::string base64(std::string_view bytes);

/// Decodes `text`. Returns nullopt if `text` is not a string that base64() returns.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tenfold::base
