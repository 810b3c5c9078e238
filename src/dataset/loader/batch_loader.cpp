#include <atomic>
#include <charconv>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include <tenfold/batch_loader.hpp>
#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "core/value/value_json.hpp"
#include "dataset/dataset_state.hpp"
#include "dataset/loader/batch_stream.hpp"
#include "dataset/padding.hpp"
#include "os/thread/fork_safe_lock.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

Error fail_loader() { return base::invalid_argument().part("batch loader"); }

/// The maximum epoch number. The epoch after it is 0, so that every saved state can be loaded.
constexpr std::int64_t kMaxEpoch = std::int64_t{1} << 62U;
/// The maximum world size. The product of two numbers up to it fits int64.
constexpr std::int64_t kMaxWorldSize = std::numeric_limits<std::int32_t>::max();

/// The maximum number of batches made in advance, all of which are in memory.
constexpr std::int64_t kMaxPrefetch = 1024;

void check(const BatchLoaderOptions& options) {
  const auto positive = [](const char* name, std::int64_t value) {
    if (value < 1) throw fail_loader().part(name).expected("at least 1").found(value);
  };
  positive("batch_size", options.batch_size);
  if (options.world_size < 1 || options.world_size > kMaxWorldSize) {
    throw fail_loader()
        .part("world_size")
        .expected("1 to ", kMaxWorldSize)
        .found(options.world_size);
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    throw fail_loader().part("rank").expected("0 to ", options.world_size - 1).found(options.rank);
  }
  if (options.prefetch < 0 || options.prefetch > kMaxPrefetch) {
    throw fail_loader().part("prefetch").expected("0 to ", kMaxPrefetch).found(options.prefetch);
  }
  static_cast<void>(os::num_threads_for(options.num_threads));  // throws for a negative number
  if (options.shuffle_block < 0) {
    throw fail_loader().part("shuffle_block").expected("0 or more").found(options.shuffle_block);
  }
}

/// Returns the int member `key`, which must not be negative. `largest` is the limit that messages
/// name; it is not checked here.
std::int64_t member(const Value::Object& object, const char* key,
                    const char* largest = "2^63 - 1") {
  const Value* value = object.find(key);
  const auto* number = value == nullptr ? nullptr : value->get_if<std::int64_t>();
  if (number == nullptr || *number < 0) {
    throw fail_loader()
        .part("state: member \"", key, "\"")
        .expected("an int from 0 to ", largest)
        .found((value == nullptr ? "none" : short_json(*value)));
  }
  return *number;
}

/// The seed in a state. A seed above 2^63 - 1 does not fit the int64 of a Value and is a BigInt.
std::uint64_t seed_of(const Value::Object& object) {
  constexpr const char* kLargest = "2^64 - 1";
  const Value* value = object.find("seed");
  const auto* large = value == nullptr ? nullptr : value->get_if<Value::BigInt>();
  if (large == nullptr) return static_cast<std::uint64_t>(member(object, "seed", kLargest));
  std::uint64_t seed = 0;
  const char* end = large->digits.data() + large->digits.size();
  const auto [rest, error] = std::from_chars(large->digits.data(), end, seed);
  if (error != std::errc() || rest != end) {
    throw fail_loader()
        .part("state: member \"seed\"")
        .expected("an int from 0 to ", kLargest)
        .found(large->digits);
  }
  return seed;
}

void check_epoch(const std::string& what, std::int64_t epoch) {
  if (epoch >= 0 && epoch <= kMaxEpoch) return;
  throw fail_loader().part(what).expected("0 to ", kMaxEpoch).found(epoch);
}

struct LoaderState {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t position = 0;
};

/// Parses a saved state of a loader. Throws Error(invalid_argument) if `json` is not such a state,
/// or if its position exceeds `num_rows`, the number of rows of the data set.
LoaderState parse_loader_state(std::string_view json, std::int64_t num_rows) {
  Value value;
  try {
    value = parse_value(json, {"", "state"});
  } catch (const Error& error) {
    throw Error(error).code(ErrorCode::invalid_argument).within("batch loader");
  }
  const auto* object = value.get_if<Value::Object>();
  if (object == nullptr)
    throw fail_loader().part("state").expected("a dict").found(short_json(value));
  LoaderState state;
  state.seed = seed_of(*object);
  state.epoch = member(*object, "epoch", "2^62");
  check_epoch("state: epoch", state.epoch);
  state.position = member(*object, "position");
  if (state.position > num_rows) {
    throw fail_loader()
        .part("state: position")
        .expected("at most the ", num_rows, " rows of the data set")
        .found(state.position);
  }
  return state;
}

}  // namespace

struct BatchLoader::State {
  State(Dataset rows, BatchLoaderOptions wanted)
      : dataset(std::move(rows)), options(std::move(wanted)) {}

  Dataset dataset;
  BatchLoaderOptions options;
  std::atomic<std::int64_t> epoch{0};
  os::ForkSafeLock lock;      ///< guards the members below
  std::int64_t position = 0;  ///< position of the newest stream
  bool resume = false;        ///< the next iteration resumes at `position`
  std::weak_ptr<BatchStream> newest;
  LoaderStats stats;
  std::shared_ptr<SuppliedMemory> supplied = std::make_shared<SuppliedMemory>();

  EpochOrder order() const {
    const auto epoch_number = static_cast<std::uint64_t>(epoch.load());
    if (!options.shuffle) return EpochOrder::sequential(dataset.size());
    if (options.shuffle_block == 0) {
      return EpochOrder::shuffled(dataset.size(), options.seed, epoch_number);
    }
    return EpochOrder::shuffled_in_blocks(dataset.size(), options.seed, epoch_number,
                                          options.shuffle_block);
  }
};

/// Locks the state of a loader. Throws Error(unsupported) in a child that was forked while another
/// thread held the lock.
class BatchLoader::StateLock {
 public:
  explicit StateLock(State& state) : state_(state) {
    if (state_.lock.lock()) return;
    throw base::unsupported()
        .part("batch loader")
        .problem("another thread was changing the loader when the process forked")
        .expected("a loader of this process")
        .found("one of the parent")
        .remedy("create a new loader");
  }
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;
  ~StateLock() { state_.lock.unlock(); }

 private:
  State& state_;
};

BatchLoader::BatchLoader(Dataset dataset, BatchLoaderOptions options) {
  check(options);
  // Takes a snapshot of the rows: this loader does not include rows that are appended later.
  dataset = dataset_of(with_open_parts(state_of(dataset)));
  if (!options.columns.empty()) dataset = dataset.select(options.columns);
  check_pads(dataset.schema(), options.batch);
  refuse_length_names(dataset.schema(), options.batch);
  state_ = std::make_unique<State>(std::move(dataset), std::move(options));
  if (!state_->options.use_supplied_memory) return;
  auto rows = std::make_shared<DatasetState>(*state_of(state_->dataset));
  rows->pool = BufferPool(state_->supplied);
  state_->dataset = dataset_of(std::move(rows));
}

BatchLoader::~BatchLoader() = default;
BatchLoader::BatchLoader(BatchLoader&&) noexcept = default;
BatchLoader& BatchLoader::operator=(BatchLoader&&) noexcept = default;

const BatchLoaderOptions& BatchLoader::options() const noexcept { return state_->options; }

std::int64_t BatchLoader::size() const noexcept {
  const std::int64_t rows = state_->dataset.size();
  const std::int64_t batch = state_->options.batch_size;
  return rows / batch + (!state_->options.drop_last && rows % batch != 0 ? 1 : 0);
}

std::int64_t BatchLoader::epoch() const noexcept { return state_->epoch; }

void BatchLoader::set_epoch(std::int64_t epoch) {
  check_epoch("epoch", epoch);
  const StateLock lock(*state_);
  state_->epoch = epoch;
  state_->position = 0;
  state_->resume = false;
  state_->newest.reset();
}

std::string BatchLoader::state_dict() const {
  const StateLock lock(*state_);
  return "{\"seed\":" + std::to_string(state_->options.seed) +
         ",\"epoch\":" + std::to_string(state_->epoch) +
         ",\"position\":" + std::to_string(state_->position) + "}";
}

void BatchLoader::load_state_dict(std::string_view json) {
  const LoaderState loaded = parse_loader_state(json, state_->dataset.size());
  const StateLock lock(*state_);
  state_->options.seed = loaded.seed;
  state_->epoch = loaded.epoch;
  state_->position = loaded.position;
  state_->resume = true;
  state_->newest.reset();
}

void BatchLoader::check_state_dict(std::string_view json) const {
  parse_loader_state(json, state_->dataset.size());
}

LoaderStats BatchLoader::stats() const {
  const StateLock lock(*state_);
  return state_->stats;
}

void BatchLoader::supply(Buffer memory) { state_->supplied->supply(std::move(memory)); }

std::vector<std::size_t> BatchLoader::requested_sizes() { return state_->supplied->requested(); }

std::shared_ptr<BatchStream> BatchLoader::start() {
  const StateLock lock(*state_);
  const std::int64_t position = state_->resume ? state_->position : 0;
  auto stream =
      std::make_shared<BatchStream>(state_->dataset, state_->options, state_->order(), position);
  state_->position = position;
  state_->resume = false;
  state_->newest = stream;
  state_->stats = stream->stats();
  return stream;
}

std::optional<Batch> BatchLoader::next(BatchStream& stream) {
  const BatchStream::Turn turn(stream);
  std::optional<Batch> batch = stream.next();
  const StateLock lock(*state_);
  // Only the newest stream changes the loader's position. An older stream only returns its batches.
  if (state_->newest.lock().get() != &stream) return batch;
  state_->stats = stream.stats();
  state_->position = stream.position();
  if (stream.is_at_end()) {
    state_->epoch = state_->epoch == kMaxEpoch ? 0 : state_->epoch + 1;
    state_->position = 0;
    state_->newest.reset();
  }
  return batch;
}

}  // namespace tenfold
