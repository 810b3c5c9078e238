#pragma once

#include <string_view>

#include "formats/format.hpp"

namespace tenfold {

/// The format with that name. Throws an error that lists the names: Error(unsupported) for
/// "pickle", Error(invalid_argument) for others.
const detail::formats::Format& format_by_name(std::string_view name);

/// The format in which to save: `name` or, if that is empty, the format of the suffix of `path`.
/// Without a known suffix, the memory-mapped folder; warns if the suffix resembles a known one or
/// is that of another program. Throws like format_by_name(), and Error(unsupported) for ".pkl".
const detail::formats::Format& format_for_saving(const Path& path, std::string_view name);

/// The content of a path, and its format.
struct FoundFormat {
  detail::formats::FileHead head;
  const detail::formats::Format* format = nullptr;

  TensorDict open(Mode mode) const { return format->open(head, {.mode = mode}); }
};

/// problem() of the error for files and folders of an unknown format.
inline constexpr std::string_view kUnknownFormat = "not a known format";

/// The format of a path: `name` or, if that is empty, the format that its content has. If the
/// content has none, the format of the suffix, or the memory-mapped folder for a damaged one: their
/// own error messages are the most helpful. Throws like format_by_name(), Error(file_not_found),
/// Error(io), Error(unsupported) listing the formats that can be read, and Error(corrupt) for a
/// FIFO, socket or device.
FoundFormat format_of_content(const Path& path, std::string_view name);

}  // namespace tenfold
