#include "dict/builder.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "formats/shared/progress.hpp"

namespace tenfold {
namespace {

struct Entry {
  std::uint64_t hash;
  std::uint64_t row;
  bool operator<(const Entry& o) const noexcept {
    return hash < o.hash || (hash == o.hash && row < o.row);
  }
};

/// The kPartBits highest bits of a hash are the partition of its entry. The buckets of the index
/// are in the order of the hashes, so the partitions are in the order of the buckets.
constexpr unsigned kPartBits = 8;
constexpr std::size_t kParts = std::size_t{1} << kPartBits;
constexpr std::size_t kSinkBytes = std::size_t{1} << 20;
constexpr std::int64_t kPollRows = 1 << 14;
/// The numbers of attempts: kSizes sizes of the index, each about twice the size before, and kSeeds
/// random seeds for each size. Keys for which all attempts fail were almost certainly chosen to
/// collide.
constexpr int kSeeds = 3;
constexpr int kSizes = 3;
constexpr const char* kSpillName = "%index-spill";

/// Entries by partition, in memory or in a spill file.
class Parts {
 public:
  Parts(os::Directory* folder, std::size_t most_in_memory)
      : folder_(folder), most_in_memory_(most_in_memory) {}

  void add(std::uint64_t hash, std::uint64_t row) {
    parts_[hash >> (64 - kPartBits)].waiting.push_back({hash, row});
    if (++num_waiting_ >= most_in_memory_ && folder_ != nullptr) spill();
  }

  /// Removes the entries of a partition, and returns them sorted by hash and row.
  std::vector<Entry> take(std::size_t number) {
    Part& part = parts_[number];
    std::size_t count = part.waiting.size();
    for (const Run& run : part.runs) count += run.count;
    std::vector<Entry> entries(count);
    std::size_t at = 0;
    for (const Run& run : part.runs) {
      file_.read_at(run.offset_bytes,
                    std::as_writable_bytes(std::span(entries).subspan(at, run.count)));
      at += run.count;
    }
    std::ranges::copy(part.waiting, entries.begin() + static_cast<std::ptrdiff_t>(at));
    part = {};
    std::sort(entries.begin(), entries.end());
    return entries;
  }

 private:
  struct Run {
    std::uint64_t offset_bytes;
    std::size_t count;
  };
  struct Part {
    std::vector<Entry> waiting;
    std::vector<Run> runs;
  };

  void spill() {
    if (!file_.valid()) {
      folder_->remove_tree(kSpillName);
      file_ = os::File::create_at(*folder_, kSpillName);
      // Removed at once, so that the file exists only while it is open. A crash between the two
      // calls leaves the file; the next spill removes it.
      folder_->remove_file(kSpillName);
    }
    for (Part& part : parts_) {
      if (part.waiting.empty()) continue;
      const auto bytes = std::as_bytes(std::span(part.waiting));
      file_.write_at(end_, bytes);
      part.runs.push_back({end_, part.waiting.size()});
      end_ += bytes.size();
      part.waiting.clear();
    }
    num_waiting_ = 0;
  }

  os::Directory* folder_;
  std::size_t most_in_memory_;
  os::File file_;
  std::uint64_t end_ = 0;
  std::size_t num_waiting_ = 0;
  std::array<Part, kParts> parts_;
};

/// Writes slots to a sink sequentially. skip_to() writes free slots (zeros) up to a position.
class SlotStream {
 public:
  explicit SlotStream(const DictSink& sink) : sink_(sink) {}

  void skip_to(std::uint64_t position) {
    while (next_ < position) push(0);
  }
  void push(std::uint64_t slot) {
    slots_.push_back(slot);
    ++next_;
    if (slots_.size() * sizeof slot >= kSinkBytes) flush();
  }
  std::uint64_t next() const noexcept { return next_; }
  void flush() {
    if (slots_.empty()) return;
    sink_((next_ - slots_.size()) * sizeof(std::uint64_t), std::as_bytes(std::span(slots_)));
    slots_.clear();
  }

 private:
  const DictSink& sink_;
  std::vector<std::uint64_t> slots_;
  std::uint64_t next_ = 0;
};

class Build {
 public:
  Build(const StoredKeys& keys, const DictBuildOptions& options, std::uint64_t seed,
        std::uint64_t num_home)
      : keys_(keys),
        options_(options),
        seed_(seed),
        num_home_(num_home),
        parts_(options.spill, options.most_in_memory) {}

  /// Writes the index to `sink`. Returns false if an entry would be too far from its home bucket;
  /// then `sink` has received only a part of the index.
  bool run(const DictSink& sink) {
    // Each entry is counted twice: when it is added, and when its sorted partition is taken.
    detail::formats::Progress progress(
        options_.monitor, 2 * sizeof(Entry) * static_cast<std::uint64_t>(keys_.num_rows), "index");
    for (std::int64_t row = 0; row < keys_.num_rows; ++row) {
      if (row % kPollRows == 0) progress.poll();
      parts_.add(keys_.hash(row, seed_), static_cast<std::uint64_t>(row));
      if (row % kPollRows == kPollRows - 1) progress.add(kPollRows * sizeof(Entry));
    }
    SlotStream slots(sink);
    for (std::size_t part = 0; part < kParts; ++part) {
      progress.poll();
      std::vector<Entry> entries = parts_.take(part);
      progress.add(entries.size() * sizeof(Entry));
      drop_duplicates(entries);
      for (const Entry& entry : entries) {
        const std::uint64_t home = dict_home(entry.hash, num_home_);
        slots.skip_to(home * kDictSlots);
        if (slots.next() / kDictSlots - home >= kDictTailBuckets) return false;
        slots.push(dict_slot(entry.hash, entry.row));
      }
    }
    slots.skip_to((num_home_ + kDictTailBuckets) * kDictSlots);
    std::array<std::uint64_t, kDictSlots> header{};
    write_dict_header(header, seed_, num_home_, static_cast<std::uint64_t>(keys_.num_rows),
                      num_dead_);
    for (const std::uint64_t word : header) slots.push(word);
    slots.flush();
    progress.finish();
    return true;
  }
  std::uint64_t num_dead() const noexcept { return num_dead_; }

 private:
  /// Keeps only the last row of each key, or throws for a duplicate key with DuplicateKeys::error.
  /// Equal keys have equal hashes, so their entries are in one run of equal hashes, sorted by row.
  void drop_duplicates(std::vector<Entry>& entries) {
    std::size_t kept = 0;
    std::size_t first = 0;  // index of the first kept entry with this hash
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i == 0 || entries[i].hash != entries[i - 1].hash) first = kept;
      bool is_new = true;
      for (std::size_t k = first; k < kept && is_new; ++k) {
        if (!same(entries[k].row, entries[i].row)) continue;
        refuse_duplicate(entries[k].row, entries[i].row);
        entries[k].row = entries[i].row;
        ++num_dead_;
        is_new = false;
      }
      if (is_new) entries[kept++] = entries[i];
    }
    entries.resize(kept);
  }

  bool same(std::uint64_t a, std::uint64_t b) const {
    return keys_.same(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b));
  }

  void refuse_duplicate(std::uint64_t a, std::uint64_t b) const {
    if (options_.duplicates == DuplicateKeys::last) return;
    throw base::invalid_argument(keys_.where)
        .part("key ", keys_.shown(static_cast<std::int64_t>(a)))
        .expected("every key once")
        .found("it in rows ", a, " and ", b)
        .remedy(
            "to keep the last row, set the option duplicates to \"last\" (in C++: "
            "DuplicateKeys::last)");
  }

  const StoredKeys& keys_;
  const DictBuildOptions& options_;
  std::uint64_t seed_;
  std::uint64_t num_home_;
  Parts parts_;
  std::uint64_t num_dead_ = 0;
};

}  // namespace

std::uint64_t build_dict_index(const StoredKeys& keys, const DictBuildOptions& options,
                               const DictSink& sink) {
  double load = options.load;
  for (int size = 0; size < kSizes; ++size, load /= 2) {
    const std::uint64_t num_home =
        dict_home_buckets(static_cast<std::uint64_t>(keys.num_rows) + options.room, load);
    for (int attempt = 0; attempt < kSeeds; ++attempt) {
      Build build(keys, options, random_dict_seed(), num_home);
      if (build.run(sink)) return build.num_dead();
    }
  }
  throw base::unsupported(keys.where)
      .part("index of the keys")
      .expected("keys whose hashes differ under one of ", kSeeds * kSizes, " seeds")
      .found("too many equal hashes");
}

Buffer build_dict_index_in_memory(const StoredKeys& keys) {
  std::vector<std::byte> made;
  const DictBuildOptions options{.duplicates = DuplicateKeys::last, .load = kDictBuiltLoad};
  build_dict_index(keys, options, [&](std::uint64_t offset_bytes, auto bytes) {
    made.resize(static_cast<std::size_t>(offset_bytes));
    made.insert(made.end(), bytes.begin(), bytes.end());
  });
  Buffer buffer = Buffer::allocate(made.size());
  std::memcpy(buffer.mutable_data(), made.data(), made.size());
  return buffer;
}

}  // namespace tenfold
