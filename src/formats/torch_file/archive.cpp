#include "formats/torch_file/archive.hpp"

#include <charconv>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"

namespace tenfold::detail::formats::torch_file {
namespace {

constexpr std::uint64_t kMaxWordBytes = 64;  // of the records version and byteorder
constexpr int kLastVersion = 10;             // the last that torch reads

std::string word_in(const codecs::ZipInput& input, const Archive& archive,
                    const codecs::ZipEntry& entry) {
  if (entry.size_bytes > kMaxWordBytes) {
    throw base::corrupt(input.where)
        .part("record ", base::quote(entry.name))
        .problem("too long")
        .expected("at most ", kMaxWordBytes, " bytes")
        .found(entry.size_bytes);
  }
  const std::vector<std::byte> bytes =
      codecs::read_zip_entry(input, codecs::with_local_header(input, archive.directory, entry));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void check_version(const codecs::ZipInput& input, const Archive& archive) {
  const codecs::ZipEntry* entry = archive.find("version");
  if (entry == nullptr) entry = archive.find(".data/version");
  if (entry == nullptr) {
    throw base::corrupt(input.where)
        .problem("record \"version\" is missing")
        .expected("one")
        .found("none");
  }
  std::string text = word_in(input, archive, *entry);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  int version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end != text.data() + text.size() || version < 1) {
    throw base::corrupt(input.where)
        .part("record \"version\"")
        .expected("a number from 1")
        .found(base::quote(text));
  }
  if (version > kLastVersion) {
    throw base::unsupported(input.where)
        .part("record \"version\"")
        .expected("1 to ", kLastVersion)
        .found(version);
  }
}

void check_byteorder(const codecs::ZipInput& input, const Archive& archive) {
  const codecs::ZipEntry* entry = archive.find("byteorder");
  if (entry == nullptr) return;
  const std::string order = word_in(input, archive, *entry);
  if (order == "little") return;
  const bool is_big = order == "big";
  throw base::fail(is_big ? ErrorCode::unsupported : ErrorCode::corrupt, input.where)
      .part("record \"byteorder\"")
      .expected("\"little\"")
      .found(base::quote(order))
      .remedy(is_big ? "save it again with torch on a little-endian machine" : "");
}

}  // namespace

const codecs::ZipEntry* Archive::find(std::string_view name) const {
  return directory.find(root + "/" + std::string(name));
}

Archive read_archive(const codecs::ZipInput& input, std::optional<codecs::ZipDirectory> directory) {
  Archive archive;
  archive.directory = directory ? *std::move(directory)
                                : codecs::read_zip_central_headers(input, codecs::ZipLimits());
  const auto& entries = archive.directory.entries;
  if (!entries.empty()) {
    archive.root = entries[0].name.substr(0, entries[0].name.find('/'));
  }
  if (archive.find("data.pkl") == nullptr) {
    throw base::unsupported(input.where)
        .problem("not a file of torch.save")
        .expected("a record \"data.pkl\" in its first folder")
        .found("none");
  }
  if (archive.find("constants.pkl") != nullptr) {
    throw base::unsupported(input.where)
        .problem("a TorchScript archive contains code")
        .expected("a file of torch.save")
        .found("a record \"constants.pkl\"")
        .remedy("save the module's state_dict()");
  }
  archive.pickle = codecs::with_local_header(input, archive.directory, *archive.find("data.pkl"));
  check_version(input, archive);
  check_byteorder(input, archive);
  return archive;
}

std::vector<std::byte> read_pickle(const codecs::ZipInput& input, const Archive& archive) {
  if (archive.pickle.size_bytes > kMaxPickleBytes) {
    throw base::unsupported(input.where)
        .part("record \"data.pkl\"")
        .problem("too long")
        .expected("at most ", kMaxPickleBytes, " bytes")
        .found(archive.pickle.size_bytes);
  }
  return codecs::read_zip_entry(input, archive.pickle);
}

}  // namespace tenfold::detail::formats::torch_file
