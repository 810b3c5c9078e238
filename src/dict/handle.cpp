#include "dict/handle.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "dataset/row_bytes.hpp"
#include "dict/builder.hpp"
#include "dict/repeated_keys.hpp"
#include "formats/folder/append/growing_sums.hpp"
#include "formats/folder/checksums.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/meta/lengths.hpp"
#include "formats/shared/commit.hpp"
#include "os/fs/file.hpp"
#include "os/fs/unreplaced.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold {

using namespace detail;
namespace {

std::vector<bool> repeated(const DictKeys& keys) {
  return std::visit([](const auto& some) { return is_repeated(some, random_dict_seed()); },
                    keys.views());
}

}  // namespace

/// The changes to the index for one batch of added rows. Hashes are computed whenever they are
/// needed, because storing the hashes of many keys would take much memory.
struct DictWriter::Change {
  const DictKeys& keys;
  std::span<const std::int64_t> old_rows;  ///< -1 for a new key
  std::uint64_t first_row;
  std::vector<bool> again;     ///< true for a row that a later row of the batch with the same key
                               ///< supersedes
  std::uint64_t num_new = 0;   ///< keys that are not in the dictionary yet
  std::uint64_t num_dead = 0;  ///< rows that this change makes superseded

  Change(const DictKeys& of, std::span<const std::int64_t> rows, std::uint64_t first)
      : keys(of), old_rows(rows), first_row(first), again(repeated(of)) {
    for (std::size_t i = 0; i < size(); ++i) ++(is_new(i) ? num_new : num_dead);
  }

  std::size_t size() const noexcept { return old_rows.size(); }
  bool is_new(std::size_t i) const { return !again[i] && old_rows[i] < 0; }
  bool is_assigned(std::size_t i) const { return !again[i] && old_rows[i] >= 0; }
  std::uint64_t row(std::size_t i) const noexcept { return first_row + i; }
  std::uint64_t hash(std::size_t i, std::uint64_t seed) const {
    return std::visit([&](const auto& some) { return dict_hash(some[i], seed); }, keys.views());
  }
};

DictWriter::DictWriter(Path path, Dataset dataset)
    : path_(std::move(path)), dataset_(std::move(dataset)), root_(os::Directory::open(path_)) {
  // Appending zero rows acquires the writer's lock and prepares later appends.
  dataset_.append(dataset_.rows(0, 0));
  num_rows_ = static_cast<std::uint64_t>(dataset_.size());
  open_index();
  num_dead_ = index_->num_dead(num_rows_);
  if (index_->word(DictWord::writer) == 0 && index_->knows(num_rows_)) return;
  // The previous writer was not closed, or rows were added to the data set without updating the
  // index. So the index may lack some changes.
  drop_checksums();
  is_begun_ = true;
  rebuild(kDictBuiltLoad, 0);
}

const DictState& DictWriter::state() {
  if (!is_behind_) return *state_;
  state_ = dict_state_of(state_of(dataset_));
  is_behind_ = false;
  return *state_;
}

std::vector<std::int64_t> DictWriter::find(const DictKeys& keys) {
  std::vector<std::int64_t> rows(num_keys_of(keys));
  // Opening a new state takes time. So keep the old state unless a slot points to a row that the
  // old state lacks.
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
  has_old_index_ = false;
}

void DictWriter::sync_index() const { os::sync_mapping(index_->buffer(), index_file_); }

/// Sets a durable flag with the boot ID in the header, before the first slot changes. A reader that
/// finds the flag with another boot ID ignores this index, and builds one in memory from the rows.
void DictWriter::begin() {
  if (is_begun_) return;
  // Throws if an earlier close() released the writer's lock and then failed.
  dataset_.append(dataset_.rows(0, 0));
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

/// Builds an index of the committed rows and atomically replaces the current index. A flag in the
/// header of the old index notifies the processes that have mapped it.
void DictWriter::rebuild(double load, std::uint64_t room) {
  // The new index is written by path, so the path must still name this folder.
  if (!root_.is_at(path_)) {
    throw Error::io(ESTALE, path_.string())
        .expected("the dictionary that was opened")
        .found("none or another one")
        .remedy("all written rows are committed: open the dictionary at its new path");
  }
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
  const formats::folder::LeafLength length{now.place.leaf, size_bytes / kDictBucketBytes};
  const auto set_length = [&] {
    formats::folder::set_meta_lengths(values_folder(), std::span(&length, 1), std::nullopt);
  };
  // The file may be longer than the length in the metadata, but must never be shorter. So a smaller
  // length is set before the file is replaced, and any other length afterwards.
  const bool is_smaller = size_bytes < index_->bytes().size();
  if (is_smaller) set_length();
  const os::FileInfo made = replacement.file().info();
  has_old_index_ = true;
  try {
    replacement.publish(true);
  } catch (const Error&) {
    // If only the sync of the folder failed, the new index is at the path already.
    const auto there = values.entry_info(now.place.file);
    if (there && there->same_file(made)) index_->set_word(DictWord::writer, kDictReplaced);
    throw;
  }
  index_->set_word(DictWord::writer, kDictReplaced);
  if (!is_smaller) set_length();
  is_behind_ = true;
  open_index();
}

/// Inserts the slots of new keys. If there is no room for all of them, leaves none inserted and
/// returns false.
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
      rollback(change, i);
      return false;
    }
    index_->store(*position, dict_slot(hash, change.row(i)));
  }
  return true;
}

/// Removes the slots of the new keys among the first `count` keys.
void DictWriter::rollback(const Change& change, std::size_t count) {
  // In reverse order, so that no free slot comes before a slot that is still to be removed: a
  // search ends at the first bucket with a free slot.
  for (std::size_t i = count; i-- > 0;) {
    if (!change.is_new(i)) continue;
    const auto position = index_->position_of(change.hash(i, index_->seed()), change.row(i));
    if (position) index_->store(*position, 0);
  }
}

/// Writes `num_rows` and the number of superseded rows among them to the pair of header words that
/// does not describe the committed rows. The commit of `num_rows` rows makes this pair valid. If
/// `num_rows` is kDictNever, clears this pair.
void DictWriter::set_dead(std::uint64_t num_dead, std::uint64_t num_rows) {
  const bool is_a = index_->word(DictWord::num_rows_a) != num_rows_;
  const DictWord counted = is_a ? DictWord::num_rows_a : DictWord::num_rows_b;
  index_->set_word(counted, kDictNever);
  index_->set_word(is_a ? DictWord::dead_a : DictWord::dead_b, num_dead);
  index_->set_word(counted, num_rows);
}

Batch DictWriter::with_keys(const DictKeys& keys, const Batch& values) const {
  BatchColumn column;
  column.column = *dataset_.schema().find(kDictKeyColumn);
  if (const auto* ints = std::get_if<0>(&keys.views())) {
    column.values = Tensor::from(*ints);
  } else {
    const auto& texts = std::get<1>(keys.views());
    std::int64_t num_bytes = 0;
    column.offsets = Tensor::zeros(DType::int64, {static_cast<std::int64_t>(texts.size()) + 1});
    auto* end = column.offsets.mutable_data<std::int64_t>();
    for (const std::string_view key : texts) {
      num_bytes += static_cast<std::int64_t>(key.size());
      *++end = num_bytes;
    }
    column.values = Tensor::zeros(DType::uint8, {num_bytes});
    std::byte* into = column.values.mutable_raw_data();
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
    throw base::invalid_argument(path_.string())
        .expected("at most ", kDictMaxRows, " rows")
        .found(num_rows_ + count);
  }
  begin();
  const Change change(keys, old_rows, num_rows_);
  if (!insert(change)) {
    rebuild(kDictGrownLoad, change.num_new);
    if (!insert(change)) {
      throw base::unsupported(path_.string())
          .part("index of the keys")
          .expected("keys whose hashes differ")
          .found("too many equal hashes");
    }
  }
  set_dead(num_dead_ + change.num_dead, num_rows_ + count);
  try {
    dataset_.append(rows);
  } catch (...) {
    rollback(change, count);
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
  set_dead(num_dead_, kDictNever);  // the slots of all committed rows are up to date
}

void DictWriter::flush() {
  sync_index();
  dataset_.flush();
}

void DictWriter::close() {
  if (!is_begun_) return dataset_.close();
  // Flush rows and slots before the flag is cleared, because without the flag every slot must point
  // to a durable row.
  flush();
  index_->set_word(DictWord::writer, 0);
  is_begun_ = false;  // even if the sync fails: the next write must set the flag again
  sync_index();
  add_checksums();
  dataset_.close();
}

namespace {

/// Maximum number of keys named in a message.
constexpr std::size_t kMaxNamed = 5;

/// Formats the keys for which is_wrong(index) is true; "" if there are none. If there are more than
/// kMaxNamed, formats the first kMaxNamed keys and the total number.
template <class IsWrong>
std::string named_keys(const DictKeys& keys, const IsWrong& is_wrong) {
  std::string text;
  std::size_t count = 0;
  std::visit(
      [&](const auto& some) {
        for (std::size_t i = 0; i < some.size(); ++i) {
          if (!is_wrong(i) || ++count > kMaxNamed) continue;
          text += (text.empty() ? "" : ", ") + shown_key(some[i]);
        }
      },
      keys.views());
  return count > kMaxNamed ? text + ", ... (" + std::to_string(count) + " keys)" : text;
}

/// The rows of the dictionary at `path`. If the tree there is not a data set, throws an error that
/// a dictionary was expected, instead of the error about what the tree lacks to be a data set.
Dataset rows_at(const Path& path, Mode mode) {
  try {
    return Dataset(path, mode);
  } catch (const Error& error) {
    const bool is_of_content =
        error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported;
    if (!is_of_content) throw;
    const TensorDict tree = open(path);
    if (DictNote::of(tree)) throw;
    throw base::invalid_argument(tree.where())
        .expected("a dictionary")
        .found("entries without an index of keys");
  }
}

}  // namespace

DictHandle::DictHandle(const Path& path, Mode mode)
    : path_(os::absolute(path)), mode_(mode), dataset_(rows_at(path, mode)) {
  open_first();
  if (mode == Mode::write_through) require_writable("mode \"r+\"");
}

DictHandle::DictHandle(TensorDict tree) : dataset_(std::move(tree)) { open_first(); }

void DictHandle::open_first() {
  state_ = open_state();
  value_schema_ = state_->values->schema;
  key_type_ = state_->keys.type;
  value_form_ = state_->form;
}

void DictHandle::renew() {
  std::construct_at(&writer_);
  std::construct_at(&paging_);
  is_closed_ = mode_ == Mode::write_through;
  if (!path_) return;
  std::construct_at(&dataset_, *path_);
  std::construct_at(&state_);
  state_ = open_state();
  is_behind_ = false;
}

/// Does not flush: without flush() or close(), written rows are visible to readers but may not be
/// durable.
DictHandle::~DictHandle() = default;

/// Opens the rows, then the index. If the dictionary was replaced in between, opens both again. In
/// the first attempt, `dataset_` may still have the rows of a dictionary that was replaced before
/// this call. So an error of the first attempt is ignored, and both are opened again.
std::shared_ptr<const DictState> DictHandle::open_state() {
  if (!path_) return open_state_once();
  bool is_first = true;
  return os::read_unreplaced(*path_, [&] {
    if (std::exchange(is_first, false)) {
      try {
        return open_state_once();
      } catch (const Error&) {  // an error that remains is thrown again below
      }
    }
    dataset_.refresh();
    return open_state_once();
  });
}

/// Opens the rows and an index that covers exactly these rows; builds the index in memory if the
/// stored index cannot be used. A writer may add rows in less time than it takes to open them, so
/// the counts are read before the rows are opened, and rows that were added later are hidden.
std::shared_ptr<const DictState> DictHandle::open_state_once() {
  constexpr int kMaxTries = 100;
  auto state = dict_state_of(state_of(dataset_));
  if (is_trusted(*state)) return state;
  for (int i = 0; i < kMaxTries && path_; ++i) {
    const auto before = std::exchange(state, nullptr);
    const bool was_replaced = before->index->word(DictWord::writer) == kDictReplaced;
    const auto counts = counts_now(*before);
    dataset_.refresh();
    state = dict_state_of(state_of(dataset_));
    if (is_trusted(*state)) return state;
    const bool is_same_index = state->index->seed() == before->index->seed();
    if (counts && is_same_index && counts->num_rows <= state->keys.num_rows) {
      // Hide the rows that were added after the counts were read.
      state->keys.num_rows = counts->num_rows;
      state->num_dead = counts->num_dead;
      return state;
    }
    if (state->keys.num_rows == before->keys.num_rows && !was_replaced) break;
  }
  make_index_in_memory(*state);
  return state;
}

std::shared_ptr<const DictState> DictHandle::known_state() const {
  const Lock lock(mutex_);
  return state_;
}

std::shared_ptr<const DictState> DictHandle::state() {
  const Lock lock(mutex_);
  if (is_behind_) {
    state_ = open_state();
    is_behind_ = false;
  }
  return state_;
}

std::shared_ptr<const DictState> DictHandle::newest() {
  auto known = state();
  auto newer = newer_than(known);
  return newer ? newer : known;
}

Dataset DictHandle::dataset() const {
  const Lock lock(mutex_);
  return dataset_;
}

void DictHandle::refresh() {
  if (!path_) return;
  const Lock lock(mutex_);
  dataset_.refresh();
  state_ = open_state();
  is_behind_ = false;
}

std::shared_ptr<const DictState> DictHandle::newer_than(
    const std::shared_ptr<const DictState>& old) {
  const Lock lock(mutex_);
  if (state_ != old) return state_;
  const auto was_replaced = [&] {
    // A writer replaces the index if it is full or out of date; compact() replaces the whole
    // dictionary.
    const auto& root = old->place.root;
    return old->index->word(DictWord::writer) == kDictReplaced ||
           (root && root->was_replaced() && os::exists(*path_));
  };
  if (!path_ || (num_rows_now(*old) == old->keys.num_rows && !was_replaced())) return nullptr;
  dataset_.refresh();
  state_ = open_state();
  is_behind_ = false;
  return state_;
}

/// Opens newer states than `state` until one contains the rows in `lookup.newer` or has another
/// index, and returns that state. Returns the newest state if those rows are not committed.
std::shared_ptr<const DictState> DictHandle::newer_with(std::shared_ptr<const DictState> state,
                                                        const DictLookup& lookup) {
  const std::uint64_t seed = state->index->seed();
  const auto is_unknown = [&](const NewerRow& newer) { return newer.row >= state->keys.num_rows; };
  do {
    auto newer = newer_than(state);
    if (newer == nullptr) return state;
    state = std::move(newer);
  } while (state->index->seed() == seed && std::ranges::any_of(lookup.newer, is_unknown));
  return state;
}

// --- paging ---

/// The object that prefetches pages; null if all sampled pages are cached, or during the pause
/// after futile prefetches. Sampling the pages takes longer than the lookup of a batch, so they are
/// sampled only for a new state and, at most once per second, after a lookup whose duration
/// contradicts the samples: slow although all samples were cached, or fast although one was not.
std::shared_ptr<DictPaging> DictHandle::paging() {
  const Lock lock(mutex_);
  if (!paging_ || paging_->state() != state_) {
    paging_ = nullptr;  // destroy it first, because it resets the kernel advice for the same pages
    paging_ = std::make_shared<DictPaging>(state_);
    checked_ = std::chrono::steady_clock::now();
    is_cold_.store(paging_->is_needed(), std::memory_order_relaxed);
    futile_prefetches_ = pause_ = 0;
  }
  if (!paging_->is_needed()) return nullptr;
  if (pause_ == 0) return paging_;
  --pause_;
  return nullptr;
}

/// Doubles the pause after each futile prefetch, up to 64 lookups, until a prefetch finds a missing
/// page or a lookup is slow.
void DictHandle::note_prefetch(bool was_missing) {
  constexpr unsigned kMaxDoublings = 6;
  const Lock lock(mutex_);
  pause_ = was_missing ? 0 : 1U << futile_prefetches_;
  futile_prefetches_ = was_missing ? 0 : std::min(futile_prefetches_ + 1, kMaxDoublings);
}

void DictHandle::note_time(std::chrono::steady_clock::duration taken, std::size_t num_keys) {
  constexpr std::chrono::nanoseconds kSlowKey{4000};
  constexpr std::chrono::seconds kCheckInterval{1};
  const bool was_slow = taken > kSlowKey * static_cast<std::int64_t>(num_keys);
  const Lock lock(mutex_);
  if (!paging_) return;
  if (was_slow) futile_prefetches_ = pause_ = 0;
  const bool is_due = std::chrono::steady_clock::now() - checked_ >= kCheckInterval;
  if (is_due && was_slow != paging_->is_needed()) paging_ = nullptr;
}

FoundRows DictHandle::find_many(const DictKeys& keys) {
  FoundRows found;
  found.rows.resize(num_keys_of(keys));
  found.state = find_paged(
      keys, found.rows, [&](const DictState& state) { return find_rows(state, keys, found.rows); });
  return found;
}

FoundValues DictHandle::get_many(const DictKeys& keys) {
  FoundRows found;
  std::optional<Batch> values;
  found.rows.resize(num_keys_of(keys));
  const DictState* searched = nullptr;
  found.state = find_paged(keys, found.rows, [&](const DictState& state) {
    searched = &state;
    return find_values(state, keys, found.rows, values);
  });
  if (searched != found.state.get()) values = gather_found(*found.state->values, found.rows);
  return {std::move(found), *std::move(values)};
}

// --- writing ---

const Path& DictHandle::require_writable(const char* what) const {
  const auto refuse = [&] { return base::unsupported(state_->keys.where).part(what); };
  if (!path_ || mode_ != Mode::write_through) {
    throw refuse()
        .expected("a dictionary opened with mode \"r+\", by its path")
        .found("one opened in another way");
  }
  if (is_closed_) throw refuse().problem("it was closed").remedy("open it again");
  if (state_->place.root == nullptr) {
    throw refuse()
        .problem("keys cannot be added in this format")
        .expected("a folder")
        .found("one file")
        .remedy("convert() it to a folder");
  }
  return *path_;
}

DictWriter& DictHandle::writer(const char* what) {
  const Path& path = require_writable(what);
  if (writer_) writer_->process().require_here(path.string());
  if (writer_ && writer_->has_old_index()) writer_ = nullptr;  // the next one repairs the index
  if (!writer_) {
    writer_ = std::make_unique<DictWriter>(path, dataset_);
    // Before this handle acquired the lock, another process may have added rows or rebuilt the
    // index.
    is_behind_ = true;
  }
  return *writer_;
}

void DictHandle::write(const DictKeys& keys, const Batch& values, Write kind) {
  const Lock lock(mutex_);
  DictWriter& to = writer(kind == Write::assign ? "assign" : "extend");
  const bool is_text = std::holds_alternative<std::span<const std::string_view>>(keys.views());
  const base::Where& where = state_->keys.where;
  if (is_text != state_->keys.is_text()) {
    throw base::invalid_argument(where)
        .part("keys")
        .expected(to_string(state_->keys.type))
        .found(is_text ? "str or bytes" : "int64");
  }
  const std::vector<std::int64_t> rows = to.find(keys);
  if (values.num_rows() != static_cast<std::int64_t>(rows.size())) {
    throw base::invalid_argument(where)
        .part("values")
        .expected("a row for each of ", rows.size(), " keys")
        .found(values.num_rows());
  }
  // Appending to the data set would accept a column "key" among the values, because the stored rows
  // have one. So check the values first.
  check_rows(value_schema_, values, where);
  if (kind != Write::assign && state_->keys.type == DictKeyType::string) {
    for (const std::string_view key : std::get<1>(keys.views())) check_utf8(key, where);
  }
  if (kind == Write::assign) {
    const std::string missing = named_keys(keys, [&](std::size_t i) { return rows[i] < 0; });
    if (!missing.empty()) {
      throw base::key_not_found(where).problem("no key ", missing).remedy("extend() adds new keys");
    }
  }
  if (kind == Write::extend) {
    const std::string there = named_keys(keys, [&](std::size_t i) { return rows[i] >= 0; });
    if (!there.empty()) {
      throw base::invalid_argument(where)
          .part("key ", there)
          .expected("new keys")
          .found("existing ones")
          .remedy(
              "to assign them, set the option duplicates to \"last\" (in C++: "
              "DuplicateKeys::last)");
    }
    const std::vector<bool> again = repeated(keys);
    const std::string twice = named_keys(keys, [&](std::size_t i) { return bool{again[i]}; });
    if (!twice.empty()) {
      throw base::invalid_argument(where)
          .part("key ", twice)
          .expected("every key once")
          .found("it more than once")
          .remedy(
              "to keep the last value, set the option duplicates to \"last\" (in C++: "
              "DuplicateKeys::last)");
    }
  }
  to.write(keys, rows, values);
  is_behind_ = true;
}

void DictHandle::begin_writing() {
  const Lock lock(mutex_);
  writer("extend");
}

void DictHandle::flush() {
  const Lock lock(mutex_);
  writer("flush").flush();
}

void DictHandle::close() {
  const Lock lock(mutex_);
  if (is_closed_ || !path_ || mode_ != Mode::write_through) return;
  try {
    if (writer_ && writer_->process().is_here()) writer("close").close();
    dataset_.close();
  } catch (const Error& error) {
    if (error.system_errno() != ESTALE) throw;
    // The folder was moved or replaced. All written rows are committed, so only the locks must
    // still be released.
    writer_ = nullptr;
    is_closed_ = true;
    try {
      dataset_.close();
    } catch (const Error&) {  // the same error again
    }
    throw;
  }
  writer_ = nullptr;
  is_closed_ = true;
  is_behind_ = true;
}

void DictHandle::replace(
    const std::function<void(const std::shared_ptr<const DictState>& source)>& replace) {
  const Lock lock(mutex_);
  const Path path = require_writable("compact");
  DictWriter& old = writer("compact");
  old.close();
  const std::unique_ptr<DictIndex> old_index = old.take_index();
  writer_ = nullptr;
  // A data set that is open for writing cannot be replaced, so reopen it read-only first.
  paging_ = nullptr;
  dataset_ = Dataset(path);
  is_closed_ = true;  // until dataset_ is writable again
  state_ = open_state();
  const auto source = state_;
  const auto reopen = [&] {
    // Notifies the processes that have mapped the old index.
    const auto& root = source->place.root;
    if (root && root->was_replaced() && os::exists(path)) {
      old_index->set_word(DictWord::writer, kDictReplaced);
    }
    dataset_ = Dataset(path, mode_);
    is_closed_ = false;
    state_ = open_state();
    is_behind_ = false;
  };
  try {
    replace(source);
  } catch (...) {
    try {
      reopen();
    } catch (const Error&) {  // the handle stays closed; the first error is the cause
    }
    throw;
  }
  reopen();
}

}  // namespace tenfold
