#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tenfold::base {

/// RFC 4648's base64, with padding: three bytes to four characters.
std::string base64(std::string_view bytes);

/// The bytes that base64() makes `text` of; nothing for other text.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tenfold::base
