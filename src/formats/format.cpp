#include "formats/format.hpp"

#include <algorithm>
#include <array>
#include <string>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "formats/shared/parts_manifest.hpp"

namespace tenfold::detail::formats {

namespace {

/// All formats, in the order in which they are probed. A consolidated file is recognised by its
/// end, and may begin like a file of any other format, so it is first. The two kinds of bundles may
/// contain files of all other formats, so they are last.
constexpr std::array<const Format*, 15> kFormats = {
    &consolidated::kFormat, &torch_file::kShardedFormat, &safetensors::kShardedFormat,
    &safetensors::kFormat,  &snapshot::kFormat,          &parts::kFormat,
    &folder::kFormat,       &folder::kArchiveFormat,     &numpy::kNpy,
    &numpy::kNpz,           &torch_file::kFormat,        &safetensors::kDcpFormat,
    &dcp::kFormat,          &bundle::kStepFormat,        &bundle::kFormat};

[[noreturn]] void refuse_to_write(const Format& format) {
  throw base::unsupported()
      .part("format ", base::quote(format.name))
      .problem("this version reads ", format.noun, " and writes none")
      .expected("one of ", names(true))
      .found(base::quote(format.name));
}

}  // namespace

std::span<const Format* const> all() noexcept { return kFormats; }

std::string names(bool are_written) {
  std::string text;
  for (auto row = kFormats.begin(); row != kFormats.end(); ++row) {
    if (are_written && (*row)->write_tree == nullptr) continue;
    const bool again = std::any_of(
        row + 1, kFormats.end(), [&](const Format* later) { return later->name == (*row)->name; });
    if (!again) text += (text.empty() ? "" : ", ") + base::quote((*row)->name);
  }
  return text;
}

TensorDict Format::open(const FileHead& head, const OpenRequest& request) const {
  if (request.mode == Mode::write_through && !is_writable_in_place) {
    throw base::unsupported(head.path().string())
        .part("mode")
        .problem(noun, " cannot be changed in place")
        .expected("\"r\" or \"c\"")
        .found("\"r+\"")
        .remedy("save it as a memmap folder");
  }
  return open_tree(head, request);
}

void Format::check(const TensorDict& tree) const {
  if (check_tree == nullptr) refuse_to_write(*this);
  check_tree(tree);
}

void Format::write(const TensorDict& tree, const Path& path, const WriteRequest& request) const {
  if (write_tree == nullptr) refuse_to_write(*this);
  if (request.zeros && !holds_zeros) {
    throw base::unsupported(path.string())
        .part("memmap_like")
        .problem("cannot create ", noun)
        .expected("a folder or a \".tdz\" archive")
        .found("the format ", base::quote(name));
  }
  write_tree(tree, path, request);
}

}  // namespace tenfold::detail::formats
