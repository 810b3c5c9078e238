#include "formats/shared/file_head.hpp"

#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "formats/shared/file_part.hpp"

namespace tenfold::detail::formats {

namespace {

constexpr std::string_view kZipMagic = "PK\x03\x04";
constexpr std::size_t kLocalHeaderBytes = 30;
constexpr std::size_t kNameLengthAt = 26;

}  // namespace

const os::File& FileHead::file() const {
  if (!file_.valid()) file_ = os::File::open_read(path_);
  return file_;
}

os::File FileHead::take_file() const {
  static_cast<void>(file());
  return std::exchange(file_, os::File());
}

const os::Directory& FileHead::folder() const {
  if (!folder_.valid()) folder_ = os::Directory::open(path_);
  return folder_;
}

os::Directory FileHead::take_folder() const {
  static_cast<void>(folder());
  return std::exchange(folder_, os::Directory());
}

bool FileHead::has_file(std::string_view name) const {
  if (!is_folder()) return false;
  const auto entry = folder().entry_info(std::string(name));
  return entry && entry->is_regular;
}

std::string_view FileHead::head() const {
  if (!head_) {
    head_.emplace(is_file() ? kHeadBytes : 0, '\0');
    if (is_file()) head_->resize(file().read_some_at(0, std::as_writable_bytes(std::span(*head_))));
  }
  return *head_;
}

std::string_view FileHead::first_zip_name() const {
  const std::string_view bytes = head();
  if (!bytes.starts_with(kZipMagic) || bytes.size() < kLocalHeaderBytes) return {};
  const std::size_t length =
      static_cast<unsigned char>(bytes[kNameLengthAt]) |
      static_cast<std::size_t>(static_cast<unsigned char>(bytes[kNameLengthAt + 1])) << 8U;
  return bytes.substr(kLocalHeaderBytes, length);
}

const codecs::ZipDirectory* FileHead::zip_directory() const {
  if (!has_searched_zip_ && head().starts_with(kZipMagic)) {
    try {
      zip_ = codecs::read_zip_central_headers(zip_input(file()), codecs::ZipLimits());
    } catch (const Error& error) {
      if (error.code() == ErrorCode::io) throw;
    }
  }
  has_searched_zip_ = true;
  return zip_ ? &*zip_ : nullptr;
}

std::optional<codecs::ZipDirectory> FileHead::take_zip_directory() const {
  has_searched_zip_ = false;
  return std::exchange(zip_, std::nullopt);
}

}  // namespace tenfold::detail::formats
