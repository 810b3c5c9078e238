#include "dataset/parts/growth.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <limits>
#include <memory>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "dataset/parts/folder.hpp"
#include "dataset/parts/part.hpp"
#include "os/fs/file.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold {

using namespace detail;
namespace {

std::atomic<std::uint64_t> part_bytes{std::uint64_t{1} << 30};

constexpr std::string_view kAppendPrefix = "append-";

std::uint64_t bytes_of(const Batch& rows) {
  std::uint64_t bytes = 0;
  for (const BatchColumn& column : rows.columns()) {
    for (const Tensor* tensor :
         {&column.values, &column.offsets, &column.item_offsets, &column.valid}) {
      bytes += static_cast<std::uint64_t>(tensor->nbytes());
    }
  }
  return bytes;
}

/// Returns the first number to try in the name of a new part: one more than the greatest number in
/// the "append-" names of the manifest.
std::int64_t next_number(const formats::PartsManifest& manifest) {
  std::int64_t next = 1;
  for (const formats::PartEntry& part : manifest.parts) {
    if (!part.path.starts_with(kAppendPrefix)) continue;
    std::int64_t number = 0;
    const char* end = part.path.data() + part.path.size();
    if (std::from_chars(part.path.data() + kAppendPrefix.size(), end, number).ptr != end) continue;
    if (number < std::numeric_limits<std::int64_t>::max()) next = std::max(next, number + 1);
  }
  return next;
}

std::string name_of(std::int64_t number) {
  constexpr std::size_t kSequenceDigits = 8;
  const std::string digits = std::to_string(number);
  return std::string(kAppendPrefix) +
         std::string(digits.size() < kSequenceDigits ? kSequenceDigits - digits.size() : 0, '0') +
         digits;
}

/// Makes `name` free for a new part. Removes a part without rows, which remains if a writer crashes
/// before it adds the part to the manifest. Returns false if `name` is any other entry, such as a
/// part that will be committed.
bool make_free(os::Directory& folder, const Path& path, const std::string& name) {
  if (!folder.entry_info(name)) return true;
  try {
    if (Dataset(path / name).size() > 0) return false;
  } catch (const Error&) {
    return false;
  }
  folder.remove_tree(name);
  return true;
}

}  // namespace

std::uint64_t set_part_bytes(std::uint64_t bytes) noexcept { return part_bytes.exchange(bytes); }

PartsGrowth::PartsGrowth(const Path& path)
    : path_(os::absolute(path)), folder_(os::Directory::open(path_)) {
  // As long as the folder is open and locked, no save replaces it.
  if (folder_.try_lock_shared() == os::LockResult::held) {
    throw Error::io(EBUSY, path_.string())
        .problem("it is being replaced")
        .expected("no other writer")
        .found("one")
        .remedy("wait for it");
  }
  const Lock lock(mutex_);
  current();
}

const std::shared_ptr<const DatasetState>& PartsGrowth::current() {
  if (state_) return state_;
  auto opened = os::read_unreplaced(
      path_, [&] { return state_of(tenfold::open(path_), os::identity_of(path_)); });
  if (schema_) {
    require_same_columns(path_, opened->schema, *schema_);
  } else {
    schema_ = opened->schema;
  }
  state_ = std::move(opened);
  return state_;
}

std::shared_ptr<const DatasetState> PartsGrowth::state() {
  const Lock lock(mutex_);
  return current();
}

std::int64_t PartsGrowth::size() {
  const Lock lock(mutex_);
  return num_rows();
}

/// The number of rows. While there is a `writer_`, it counts the rows of the last part without
/// opening files.
std::int64_t PartsGrowth::num_rows() {
  if (!writer_) return current()->order->size();
  std::int64_t rows = writer_->size();
  for (std::size_t i = 0; i + 1 < manifest_.parts.size(); ++i) rows += manifest_.parts[i].num_rows;
  return rows;
}

void PartsGrowth::require_open(const char* what) const {
  if (!closed_) return;
  throw base::unsupported(path_).part(what).problem("it was closed").remedy("open it again");
}

/// Replaces the manifest on disk, then the copy in memory.
void PartsGrowth::publish(formats::PartsManifest manifest) {
  publish_parts(manifest, *lease_, path_, true);
  manifest_ = std::move(manifest);
}

/// Acquires the lease, then reads the manifest again, because another writer may have changed it.
/// Does nothing if the lease was acquired before.
void PartsGrowth::start() {
  if (lease_) return;
  os::Lease lease = lease_parts(folder_, path_);
  const auto again = os::Directory::open(path_);
  if (!again.info().same_file(folder_.info())) {
    throw Error::io(ESTALE, path_.string())
        .problem("it was replaced since it was opened")
        .expected("the same data set")
        .found("another data set")
        .remedy("open it again");
  }
  manifest_ = formats::read_parts_manifest(folder_);
  lease_ = std::move(lease);
  process_ = {};
  state_ = nullptr;
}

/// Opens the last part for appending. Returns false if there is no part, if the last part does not
/// support appends, or if it is marked closed and has reached the size limit.
bool PartsGrowth::continue_last() {
  if (manifest_.parts.empty()) return false;
  const formats::PartEntry& last = manifest_.parts.back();
  if (!last.is_open && last.num_bytes >= part_bytes) return false;
  // Check the part like a reader. Otherwise, rows would be appended to another data set if the part
  // is a link, and wrong numbers of rows would replace those in the manifest.
  static_cast<void>(
      PartsFolder::open(folder_.duplicate(), path_)->open(manifest_.parts.size() - 1));
  Dataset writer(path_ / last.path, Mode::write_through);
  try {
    writer.append(writer.rows(0, 0));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    writer.close();
    return false;
  }
  if (!last.is_open) {
    formats::PartsManifest opened = manifest_;
    opened.parts.back().is_open = true;
    opened.parts.back().checksum.reset();
    publish(std::move(opened));
  }
  writer_bytes_ = 0;
  writer.tree().for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
    if (const auto* leaf = std::get_if<Leaf>(&item)) writer_bytes_ += leaf->nbytes();
  });
  writer_ = std::move(writer);
  return true;
}

void PartsGrowth::begin_part() {
  std::int64_t number = next_number(manifest_);
  // This process holds the lease, so no other writer is creating the part that make_free() removes.
  while (!make_free(folder_, path_, name_of(number))) ++number;
  const std::string name = name_of(number);
  Dataset writer = create(path_ / name, *schema_);
  writer.append(writer.rows(0, 0));
  formats::PartEntry entry;
  entry.path = name;
  entry.is_open = true;
  formats::PartsManifest longer = manifest_;
  longer.parts.push_back(std::move(entry));
  publish(std::move(longer));
  writer_ = std::move(writer);
  writer_bytes_ = 0;
}

/// Closes the writer of the last part, and publishes the part as closed.
void PartsGrowth::seal_writer() {
  Dataset writer = *std::exchange(writer_, std::nullopt);
  writer.close();
  formats::PartsManifest sealed = manifest_;
  formats::PartEntry& last = sealed.parts.back();
  last = entry_of_part(folder_, path_, last.path, *schema_);
  publish(std::move(sealed));
}

std::int64_t PartsGrowth::append(const Batch& rows) {
  const Lock lock(mutex_);
  require_open("append");
  check_rows(*schema_, rows, path_.string());
  if (rows.num_rows() == 0) return num_rows();
  start();
  if (const std::int64_t now = num_rows();
      rows.num_rows() > std::numeric_limits<std::int64_t>::max() - now) {
    throw base::invalid_argument(path_.string())
        .part("rows in all")
        .expected("fewer than 2^63")
        .found(now, " in the data set and ", rows.num_rows(), " to append");
  }
  if (writer_ && writer_bytes_ >= part_bytes) seal_writer();
  if (!writer_ && !continue_last()) begin_part();
  writer_->append(rows);
  writer_bytes_ += bytes_of(rows);
  state_ = nullptr;
  return num_rows();
}

void PartsGrowth::update(std::span<const std::int64_t>, const Batch&) {
  throw base::unsupported(path_)
      .part("update of rows in place")
      .expected("a data set in one folder")
      .found("a data set of parts")
      .remedy("open the part that contains the rows, or compact() the data set");
}

void PartsGrowth::flush() {
  const Lock lock(mutex_);
  require_open("flush");
  if (writer_) writer_->flush();
}

void PartsGrowth::close() {
  const Lock lock(mutex_);
  if (closed_) return;
  closed_ = true;
  state_ = nullptr;
  try {
    if (writer_ && process_.is_here()) seal_writer();
  } catch (...) {
    release();
    throw;
  }
  release();
}

void PartsGrowth::release() noexcept {
  lease_.reset();
  // In a forked child, unlock() would release the lock of the parent.
  if (opener_.is_here()) folder_.unlock();
}

void PartsGrowth::renew() noexcept {
  std::construct_at(&state_);
  std::construct_at(&lease_);
  std::construct_at(&manifest_);
  std::construct_at(&writer_);
  closed_ = true;
}

void PartsGrowth::refresh() {
  const Lock lock(mutex_);
  state_ = nullptr;
  current();
}

}  // namespace tenfold
