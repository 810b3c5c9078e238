#include "dict/handle.hpp"

#include <algorithm>
#include <utility>

#include <tenfold/error.hpp>

#include "dict/repeats.hpp"
#include "os/fs/file.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold {
namespace {

/// Keys that a message names.
constexpr std::size_t kMostNamed = 5;

/// The first keys that `is_wrong` says so of, by their numbers; empty if there are none.
template <class IsWrong>
std::string named_keys(const DictKeys& keys, const IsWrong& is_wrong) {
  std::string text;
  std::size_t count = 0;
  std::visit(
      [&](const auto& some) {
        for (std::size_t i = 0; i < some.size(); ++i) {
          if (!is_wrong(i) || ++count > kMostNamed) continue;
          text += (text.empty() ? "" : ", ") + shown_key(some[i]);
        }
      },
      keys);
  return count > kMostNamed ? text + ", ... (" + std::to_string(count) + " keys)" : text;
}

}  // namespace

DictHandle::DictHandle(const Path& path, Mode mode)
    : path_(std::filesystem::absolute(path)), mode_(mode), dataset_(path, mode) {
  open_first();
}

DictHandle::DictHandle(TensorDict tree) : dataset_(std::move(tree)) { open_first(); }

void DictHandle::open_first() {
  state_ = open_state();
  value_schema_ = state_->values->schema;
  key_type_ = state_->keys.type;
  value_form_ = state_->form;
}

/// Without close() all that was written is there, only not yet on the device.
DictHandle::~DictHandle() = default;

/// The rows were opened before the index: a replacement in between takes both anew. It may have
/// come before the path is looked at here, too, so a first failure proves nothing.
std::shared_ptr<const DictState> DictHandle::open_state() {
  if (!path_) return open_state_once();
  bool is_first = true;
  return os::read_unreplaced(*path_, [&] {
    if (std::exchange(is_first, false)) {
      try {
        return open_state_once();
      } catch (const Error&) {  // what is wrong with the path itself is said below
      }
    }
    dataset_.refresh();
    return open_state_once();
  });
}

/// Rows and index belong together, and somebody may be adding rows just now, in less time than it
/// takes to open them: then the counts of a moment before are those of the rows that are opened
/// next.
std::shared_ptr<const DictState> DictHandle::open_state_once() {
  constexpr int kMostTries = 100;
  auto state = dict_state_of(dataset_.state());
  if (is_trusted(*state)) return state;
  for (int i = 0; i < kMostTries && path_; ++i) {
    const auto before = std::exchange(state, nullptr);
    const bool was_replaced = before->index->word(DictWord::writer) == kDictReplaced;
    const auto counts = counts_now(*before);
    dataset_.refresh();
    state = dict_state_of(dataset_.state());
    if (is_trusted(*state)) return state;
    const bool is_same_index = state->index->seed() == before->index->seed();
    if (counts && is_same_index && counts->num_rows <= state->keys.num_rows) {
      // Without the rows that were added since.
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
    // The index by a writer that needed a larger one, or all of it by compact().
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

/// The first state that knows the rows that slots have named, or is of another index; `state` if
/// those rows are not committed.
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

// --- what is not in memory ---

/// Who asks for pages; null if all is in memory, or was where it was asked for lately. A look
/// whether all is takes longer than a batch, so it is taken when a state is new, and now and then
/// while lookups are slow or something was missing.
std::shared_ptr<DictPaging> DictHandle::paging() {
  const Lock lock(mutex_);
  if (!paging_ || paging_->state() != state_) {
    paging_ = nullptr;  // before another one advises the kernel of the same pages
    paging_ = std::make_shared<DictPaging>(state_);
    looked_ = std::chrono::steady_clock::now();
    is_cold_.store(paging_->is_needed(), std::memory_order_relaxed);
    in_vain_ = pause_ = 0;
  }
  if (!paging_->is_needed()) return nullptr;
  if (pause_ == 0) return paging_;
  --pause_;
  return nullptr;
}

/// Whoever asked in vain waits twice as long before asking again, until a lookup is slow.
void DictHandle::note_asking(bool was_missing) {
  constexpr unsigned kMostDoublings = 6;
  const Lock lock(mutex_);
  pause_ = was_missing ? 0 : 1U << in_vain_;
  in_vain_ = was_missing ? 0 : std::min(in_vain_ + 1, kMostDoublings);
}

void DictHandle::note_time(std::chrono::steady_clock::duration taken, std::size_t num_keys) {
  constexpr std::chrono::nanoseconds kSlowKey{4000};
  constexpr std::chrono::seconds kBetweenLooks{1};
  const bool was_slow = taken > kSlowKey * static_cast<std::int64_t>(num_keys);
  const Lock lock(mutex_);
  if (!paging_) return;
  if (was_slow) in_vain_ = pause_ = 0;
  const bool is_due = std::chrono::steady_clock::now() - looked_ >= kBetweenLooks;
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
  const auto refuse = [&](const std::string& text) {
    throw Error(ErrorCode::unsupported, state_->keys.where + ": " + what + ": " + text);
  };
  if (!path_ || mode_ != Mode::write_through) {
    refuse("expected a dictionary opened with mode \"r+\", found one opened to read");
  }
  if (is_closed_) refuse("it was closed: open it again");
  if (state_->place.root == nullptr) {
    refuse(
        "keys cannot be added in this format: expected a folder, found one file; convert() it "
        "to a folder");
  }
  return *path_;
}

DictWriter& DictHandle::writer(const char* what) {
  const Path& path = require_writable(what);
  if (!writer_) {
    writer_ = std::make_unique<DictWriter>(path, dataset_);
    // What others wrote last, and an index that may have been mended.
    is_behind_ = true;
  }
  return *writer_;
}

void DictHandle::write(const DictKeys& keys, const Batch& values, Write kind) {
  const Lock lock(mutex_);
  DictWriter& to = writer(kind == Write::assign ? "assign" : "extend");
  const bool is_text = std::holds_alternative<std::span<const std::string_view>>(keys);
  const std::string& where = state_->keys.where;
  const auto refuse = [&](ErrorCode code, const std::string& what) {
    throw Error(code, where + ": " + what);
  };
  if (is_text != state_->keys.is_text()) {
    refuse(ErrorCode::invalid_argument, "keys: expected " + std::string(name(state_->keys.type)) +
                                            ", found " + (is_text ? "text" : "int64"));
  }
  const std::vector<std::int64_t> rows = to.find(keys);
  if (values.num_rows() != static_cast<std::int64_t>(rows.size())) {
    refuse(ErrorCode::invalid_argument, "values: expected a row for each of " +
                                            std::to_string(rows.size()) + " keys, found " +
                                            std::to_string(values.num_rows()));
  }
  if (kind == Write::assign) {
    const std::string missing = named_keys(keys, [&](std::size_t i) { return rows[i] < 0; });
    if (!missing.empty()) {
      refuse(ErrorCode::key_not_found,
             "no key " + missing + "; extend() adds keys that are not there yet");
    }
  }
  if (kind == Write::extend) {
    const std::string there = named_keys(keys, [&](std::size_t i) { return rows[i] >= 0; });
    if (!there.empty()) {
      refuse(ErrorCode::invalid_argument,
             "key " + there + ": expected keys that are not there " +
                 "yet, found them; the option duplicates \"last\" assigns them");
    }
    const std::vector<bool> repeated =
        std::visit([](const auto& some) { return comes_again(some, random_dict_seed()); }, keys);
    const std::string twice = named_keys(keys, [&](std::size_t i) { return bool{repeated[i]}; });
    if (!twice.empty()) {
      refuse(ErrorCode::invalid_argument,
             "key " + twice + ": expected every key once, found it " +
                 "twice; the option duplicates \"last\" keeps the last");
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
  if (writer_) writer_->close();
  writer_ = nullptr;
  dataset_.close();
  is_closed_ = true;
  is_behind_ = true;
}

void DictHandle::replace(
    const std::function<void(const std::shared_ptr<const DictState>& source)>& replace) {
  const Lock lock(mutex_);
  const Path path = require_writable("compact");
  writer("compact").close();
  writer_ = nullptr;
  // What is open for writing cannot be replaced, so it is open for reading only meanwhile.
  paging_ = nullptr;
  dataset_ = Dataset(path);
  state_ = open_state();
  const auto source = state_;
  const auto reopen = [&] {
    dataset_ = Dataset(path, mode_);
    state_ = open_state();
    is_behind_ = false;
  };
  try {
    replace(source);
  } catch (...) {
    reopen();
    throw;
  }
  reopen();
}

}  // namespace tenfold
