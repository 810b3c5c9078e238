#include "formats/folder/archive/folder.hpp"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"

namespace tenfold::detail::formats::folder {
namespace {

constexpr std::uint64_t kSpareBytes = std::uint64_t{64} << 10U;

class EntryFile final : public StoredFile {
 public:
  EntryFile(std::shared_ptr<Archive> archive, std::size_t number, const StoredInfo& info)
      : archive_(std::move(archive)),
        number_(number),
        info_(info),
        display_(archive_->file().display() + "/" + entry().name) {}

  const std::string& display() const noexcept override { return display_; }
  const StoredInfo& info() const noexcept override { return info_; }
  std::uint64_t size_bytes_now() const override { return info_.size_bytes; }
  std::size_t read_some_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    return archive_->read_some(number_, offset_bytes, into);
  }
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    const std::size_t found = archive_->read_some(number_, offset_bytes, into);
    if (found == into.size()) return;
    throw base::corrupt(display_)
        .problem("the entry is too short")
        .expected("at least ", offset_bytes + into.size(), " bytes")
        .found(offset_bytes + found)
        .remedy("the archive may be truncated");
  }
  void check_cost(std::uint64_t size_bytes) const override {
    // The entry is inflated as a whole, and map() keeps all its bytes in memory until the tensor is
    // destroyed.
    const std::uint64_t most = kSpareBytes + std::min(size_bytes, entry().size_bytes) * 2;
    if (entry().method == codecs::ZipMethod::stored || entry().size_bytes <= most) return;
    throw base::unsupported(display_)
        .problem("a deflated entry is much longer than its tensor")
        .expected("about ", size_bytes, " bytes")
        .found(entry().size_bytes)
        .remedy("use unpack_memmap to convert the archive to a folder");
  }
  Buffer map(std::uint64_t size_bytes, Mode, Arena&) const override {
    return archive_->map(number_, size_bytes);
  }

 private:
  const codecs::ZipEntry& entry() const noexcept { return archive_->entries()[number_]; }

  std::shared_ptr<Archive> archive_;
  std::size_t number_;
  StoredInfo info_;
  std::string display_;
};

class ArchiveFolder final : public Folder {
 public:
  ArchiveFolder(std::shared_ptr<Archive> archive, const std::string& path, std::size_t depth)
      : archive_(std::move(archive)),
        prefix_(path.empty() ? path : path + "/"),
        display_(archive_->file().display() + (path.empty() ? "" : "/" + path)),
        depth_(depth) {}

  const std::string& display() const noexcept override { return display_; }

  std::shared_ptr<Folder> try_child(const std::string& name) override {
    if (!has_child(name)) return nullptr;
    if (depth_ + 1 > kMaxDepth) {
      throw base::unsupported(display_ + "/" + name)
          .problem("nodes nested too deep")
          .expected("at most ", kMaxDepth, " levels");
    }
    return std::make_shared<ArchiveFolder>(archive_, prefix_ + name, depth_ + 1);
  }

  bool has_child(const std::string& name) override { return archive_->has_folder(prefix_ + name); }

  std::unique_ptr<StoredFile> try_open(const std::string& name, bool for_writing) override {
    const auto number = archive_->find(prefix_ + name);
    if (!number) return nullptr;
    if (for_writing) {
      const std::lock_guard lock(mutex_);
      written_.push_back(*number);
    }
    return std::make_unique<EntryFile>(archive_, *number, info_of(*number));
  }

  std::optional<StoredInfo> file_info(const std::string& name) override {
    const auto number = archive_->find(prefix_ + name);
    if (!number) return std::nullopt;
    return info_of(*number);
  }

  std::optional<std::string> read_text(const std::string& name,
                                       std::uint64_t limit_bytes) override {
    const auto number = archive_->find(prefix_ + name);
    if (!number) return std::nullopt;
    const codecs::ZipEntry& entry = archive_->entries()[*number];
    if (entry.size_bytes > limit_bytes) {
      throw base::corrupt(display_ + "/" + name)
          .problem("the entry is too large")
          .expected("at most ", limit_bytes, " bytes")
          .found(entry.size_bytes);
    }
    std::string text(static_cast<std::size_t>(entry.size_bytes), '\0');
    codecs::read_zip_entry(archive_->input(), entry, std::as_writable_bytes(std::span(text)));
    return text;
  }

  bool is_one_mapping() const noexcept override { return archive_->is_one_mapping(); }

  void flush(const std::vector<MappedPart>&, Monitor* monitor) override {
    std::vector<std::size_t> written;
    {
      const std::lock_guard lock(mutex_);
      written = written_;
    }
    archive_->refresh(written, {.durable = true, .monitor = monitor});
  }

  // Always false: replacing the path does not affect the archive, which is one open file.
  bool was_replaced() override { return false; }
  [[noreturn]] void throw_replaced() const override {
    throw Error::io(ESTALE, display_).problem("the archive was replaced").remedy("open it again");
  }

 private:
  StoredInfo info_of(std::size_t number) const {
    const codecs::ZipEntry& entry = archive_->entries()[number];
    return {.device = archive_->info().device,
            .inode = archive_->info().inode,
            .offset_bytes = entry.header_offset,
            .size_bytes = entry.size_bytes};
  }

  std::shared_ptr<Archive> archive_;
  std::string prefix_;
  std::string display_;
  std::size_t depth_;
  std::mutex mutex_;
  std::vector<std::size_t> written_;
};

}  // namespace

std::shared_ptr<Folder> root_of(std::shared_ptr<Archive> archive) {
  return std::make_shared<ArchiveFolder>(std::move(archive), std::string(), 0);
}

}  // namespace tenfold::detail::formats::folder
