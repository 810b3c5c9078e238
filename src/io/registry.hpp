#pragma once

#include <string_view>

#include "formats/format.hpp"

namespace tenfold {

/// Returns the format called `name`. For an unknown name, throws an Error(invalid_argument) that
/// lists the names of all formats. For "pickle", which is not supported, throws Error(unsupported).
const detail::formats::Format& format_by_name(std::string_view name);

/// Returns the format in which to save: the one called `name` or, if that is empty, the one with
/// the suffix of `path`. Without a known suffix, returns the format of memory-mapped folders, and
/// warns if the suffix resembles a known one or is usual for other programs. Throws like
/// format_by_name(), and Error(unsupported) if `name` is empty and the suffix is ".pkl".
const detail::formats::Format& format_for_saving(const Path& path, std::string_view name);

/// The content of a path, and its format.
struct FoundFormat {
  detail::formats::FileHead head;
  const detail::formats::Format* format = nullptr;

  TensorDict open(Mode mode) const { return format->open(head, {.mode = mode}); }
};

/// The problem in the error message for files and folders of an unknown format.
inline constexpr std::string_view kUnknownFormat = "not a known format";

/// Returns the format of a path: the one called `name` or, if that is empty, the one that the
/// content matches. If the content matches no format, returns a format in which opening the path
/// gives a helpful error message: for a file, the format of its suffix, unless the content rules it
/// out; for a folder that seems to be a damaged memory-mapped folder, that format. Throws
/// Error(unsupported), listing the formats that can be read, if there is no such format. Also
/// throws what format_by_name() throws, Error(file_not_found), Error(io), and Error(corrupt) for a
/// FIFO, socket or device.
FoundFormat format_of_content(const Path& path, std::string_view name);

}  // namespace tenfold
