#include "dict/writer.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "dict/builder.hpp"
#include "dict/repeats.hpp"
#include "formats/folder/append/growing_sums.hpp"
#include "formats/folder/checksums.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/meta/lengths.hpp"
#include "formats/shared/commit.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold {

using namespace detail;

/// What becomes of the index when rows are added. Hashes are computed whenever they are needed, so
/// that of many keys little is in memory.
struct DictWriter::Change {
  const DictKeys& keys;
  std::span<const std::int64_t> old_rows;  ///< -1: of a new key
  std::uint64_t first_row;
  std::vector<bool> again;     ///< keys that come again behind: their rows are of no use
  std::uint64_t num_new = 0;   ///< keys that are not there yet
  std::uint64_t num_dead = 0;  ///< rows that are of no use afterwards, more than before

  Change(const DictKeys& of, std::span<const std::int64_t> rows, std::uint64_t first,
         std::uint64_t seed)
      : keys(of),
        old_rows(rows),
        first_row(first),
        again(std::visit([&](const auto& some) { return comes_again(some, seed); }, of)) {
    for (std::size_t i = 0; i < size(); ++i) ++(is_new(i) ? num_new : num_dead);
  }

  std::size_t size() const noexcept { return old_rows.size(); }
  bool is_new(std::size_t i) const { return !again[i] && old_rows[i] < 0; }
  bool is_assigned(std::size_t i) const { return !again[i] && old_rows[i] >= 0; }
  std::uint64_t row(std::size_t i) const noexcept { return first_row + i; }
  std::uint64_t hash(std::size_t i, std::uint64_t seed) const {
    return std::visit([&](const auto& some) { return dict_hash(some[i], seed); }, keys);
  }
};

DictWriter::DictWriter(Path path, Dataset dataset)
    : path_(std::move(path)), dataset_(std::move(dataset)), root_(os::Directory::open(path_)) {
  // No row: this takes the lock and what appending needs.
  dataset_.append(dataset_.rows(0, 0));
  num_rows_ = static_cast<std::uint64_t>(dataset_.size());
  open_index();
  num_dead_ = index_->num_dead(num_rows_);
  if (index_->word(DictWord::writer) == 0 && index_->knows(num_rows_)) return;
  // Somebody was killed: what it had put into the index may be half of it.
  drop_checksums();
  is_begun_ = true;
  rebuild(kDictBuiltLoad, 0);
}

const DictState& DictWriter::state() {
  if (!is_behind_) return *state_;
  state_ = dict_state_of(dataset_.state());
  is_behind_ = false;
  return *state_;
}

std::vector<std::int64_t> DictWriter::find(const DictKeys& keys) {
  std::vector<std::int64_t> rows(num_keys_of(keys));
  // A state costs a little to make: the one before serves as long as it knows the rows.
  if (!find_rows(*state_, keys, rows).newer.empty() && is_behind_) find_rows(state(), keys, rows);
  return rows;
}

Path DictWriter::values_folder() const { return path_ / formats::folder::kValuesName; }

void DictWriter::open_index() {
  const os::Directory values =
      os::Directory::open_at(root_, std::string(formats::folder::kValuesName));
  const os::File file = os::File::open_read_write_at(values, state().place.file);
  index_ = std::make_unique<DictIndex>(
      os::map_file(file, 0, file.size_bytes(), os::MapKind::shared_write), path_.string());
  index_file_ = file.display();
}

void DictWriter::sync_index() const { os::sync_mapping(index_->buffer(), index_file_); }

/// Before the first slot is changed, the header says so on the device: whoever finds that after the
/// system went down trusts the rows alone.
void DictWriter::begin() {
  if (is_begun_) return;
  drop_checksums();
  index_->set_word(DictWord::writer, dict_boot());
  sync_index();
  is_begun_ = true;
}

void DictWriter::drop_checksums() {
  formats::folder::ChecksumsEdit edit(root_, path_);
  if (!edit.is_whole()) return;
  std::vector<formats::ChecksumLine> lines = edit.lines();
  const std::string folder = std::string(formats::folder::kValuesName) + "/";
  const std::array<std::string, 2> changed = {folder + state().place.file,
                                              folder + std::string(formats::folder::kMetaName)};
  const auto count = std::erase_if(lines, [&](const formats::ChecksumLine& line) {
    return std::ranges::count(changed, line.path) > 0;
  });
  if (count > 0) edit.publish(lines);
}

void DictWriter::add_checksums() {
  formats::folder::ChecksumsEdit edit(root_, path_);
  if (!edit.is_whole()) return;
  std::vector<formats::ChecksumLine> lines = edit.lines();
  const os::Directory values =
      os::Directory::open_at(root_, std::string(formats::folder::kValuesName));
  for (const std::string& name : {state().place.file, std::string(formats::folder::kMetaName)}) {
    const std::string path = std::string(formats::folder::kValuesName) + "/" + name;
    std::erase_if(lines, [&](const formats::ChecksumLine& line) { return line.path == path; });
    formats::folder::add_lines_of(os::File::open_read_at(values, name), path, lines);
  }
  edit.publish(lines);
}

/// Makes an index of the rows that are committed, in the place of the one that is there: by one
/// step, and whoever has mapped the old one is told in its header.
void DictWriter::rebuild(double load, std::uint64_t room) {
  const DictState& now = state();
  const Path file = values_folder() / now.place.file;
  formats::FileReplacement replacement(file, 0);
  std::uint64_t size_bytes = 0;
  os::Directory values = os::Directory::open_at(root_, std::string(formats::folder::kValuesName));
  const DictBuildOptions options{
      .duplicates = DuplicateKeys::last, .load = load, .room = room, .spill = &values};
  num_dead_ = build_dict_index(now.keys, options, [&](std::uint64_t offset_bytes, auto bytes) {
    replacement.file().write_at(offset_bytes, bytes);
    size_bytes = offset_bytes + bytes.size();
  });
  const std::uint64_t boot = dict_boot();
  const std::uint64_t word_at =
      size_bytes - kDictBucketBytes + static_cast<std::uint64_t>(DictWord::writer) * sizeof boot;
  replacement.file().write_at(word_at, std::as_bytes(std::span(&boot, 1)));
  replacement.publish(true);
  index_->set_word(DictWord::writer, kDictReplaced);
  const formats::folder::LeafLength length{now.place.leaf, size_bytes / kDictBucketBytes};
  formats::folder::set_meta_lengths(values_folder(), std::span(&length, 1), std::nullopt);
  is_behind_ = true;
  open_index();
}

/// Puts in the slots of new keys; false, with none of them there, if there is no room.
bool DictWriter::insert(const Change& change) {
  const std::uint64_t taken = num_rows_ - num_dead_ + change.num_new;
  if (static_cast<double>(taken) > kDictMaxLoad * static_cast<double>(index_->num_slots())) {
    return false;
  }
  for (std::size_t i = 0; i < change.size(); ++i) {
    if (!change.is_new(i)) continue;
    const std::uint64_t hash = change.hash(i, index_->seed());
    const auto position = index_->free_position(hash);
    if (!position) {
      take_back(change, i);
      return false;
    }
    index_->store(*position, dict_slot(hash, change.row(i)));
  }
  return true;
}

/// The slots of the first `count` keys.
void DictWriter::take_back(const Change& change, std::size_t count) {
  // The last first: a search ends at the first bucket with room.
  for (std::size_t i = count; i-- > 0;) {
    if (!change.is_new(i)) continue;
    const auto position = index_->position_of(change.hash(i, index_->seed()), change.row(i));
    if (position) index_->store(*position, 0);
  }
}

/// Counts once there are `num_rows` rows: the commit makes both true at once.
void DictWriter::set_dead(std::uint64_t num_dead, std::uint64_t num_rows) {
  const bool is_a = index_->word(DictWord::num_rows_a) != num_rows_;  // the pair that is free
  const DictWord counted = is_a ? DictWord::num_rows_a : DictWord::num_rows_b;
  index_->set_word(counted, kDictNever);
  index_->set_word(is_a ? DictWord::dead_a : DictWord::dead_b, num_dead);
  index_->set_word(counted, num_rows);
}

Batch DictWriter::with_keys(const DictKeys& keys, const Batch& values) const {
  BatchColumn column;
  column.column = *dataset_.schema().find(kDictKeyColumn);
  if (const auto* ints = std::get_if<0>(&keys)) {
    column.values = Tensor::from(*ints);
  } else {
    const auto& texts = std::get<1>(keys);
    std::int64_t num_bytes = 0;
    column.offsets = Tensor::zeros(DType::int64, {static_cast<std::int64_t>(texts.size()) + 1});
    auto* end = column.offsets.mutable_data<std::int64_t>();
    for (const std::string_view key : texts) {
      num_bytes += static_cast<std::int64_t>(key.size());
      *++end = num_bytes;
    }
    column.values = Tensor::zeros(DType::uint8, {num_bytes});
    std::byte* into = column.values.raw_data();
    for (const std::string_view key : texts) {
      into = std::ranges::copy(std::as_bytes(std::span(key)), into).out;
    }
  }
  std::vector<BatchColumn> columns = values.columns();
  columns.push_back(std::move(column));
  return {values.num_rows(), std::move(columns)};
}

void DictWriter::write(const DictKeys& keys, std::span<const std::int64_t> old_rows,
                       const Batch& values) {
  const std::size_t count = num_keys_of(keys);
  if (count == 0) return;
  const Batch rows = with_keys(keys, values);
  if (num_rows_ + count > kDictMaxRows) {
    throw Error(ErrorCode::invalid_argument, path_.string() + ": expected at most " +
                                                 std::to_string(kDictMaxRows) + " rows, found " +
                                                 std::to_string(num_rows_ + count));
  }
  begin();
  const Change change(keys, old_rows, num_rows_, index_->seed());
  if (!insert(change)) {
    rebuild(kDictGrownLoad, change.num_new);
    if (!insert(change)) {
      throw Error(ErrorCode::unsupported,
                  path_.string() +
                      ": index of the keys: expected keys whose hashes differ, found "
                      "too many that are the same");
    }
  }
  set_dead(num_dead_ + change.num_dead, num_rows_ + count);
  try {
    dataset_.append(rows);
  } catch (...) {
    take_back(change, count);
    set_dead(num_dead_, kDictNever);
    throw;
  }
  num_rows_ += count;
  num_dead_ += change.num_dead;
  is_behind_ = true;
  for (std::size_t i = 0; i < count; ++i) {
    if (!change.is_assigned(i)) continue;
    const std::uint64_t hash = change.hash(i, index_->seed());
    const auto position = index_->position_of(hash, static_cast<std::uint64_t>(old_rows[i]));
    if (position) index_->store(*position, dict_slot(hash, change.row(i)));
  }
  set_dead(num_dead_, kDictNever);  // every row that is committed has its slot
}

void DictWriter::flush() {
  sync_index();
  dataset_.flush();
}

void DictWriter::close() {
  if (!is_begun_) return dataset_.close();
  // The rows first: slots name only what is there.
  flush();
  index_->set_word(DictWord::writer, 0);
  sync_index();
  is_begun_ = false;
  add_checksums();
  dataset_.close();
}

}  // namespace tenfold
