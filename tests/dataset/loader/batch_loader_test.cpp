#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <numeric>
#include <ranges>
#include <string>
#include <thread>
#include <vector>

#include <tenfold/accumulate.hpp>
#include <tenfold/batch_loader.hpp>
#include <tenfold/error.hpp>
#include <tenfold/permutation.hpp>

#include "base/sanitizers.hpp"
#include "dataset/loader/batch_stream.hpp"
#include "dataset/table_of.hpp"
#include "support/message_of.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> ids_of(const Batch& batch) {
  const auto ids = batch.at("id").span<std::int64_t>();
  return {ids.begin(), ids.end()};
}

std::vector<std::int64_t> epoch_of(BatchLoader& loader) {
  std::vector<std::int64_t> all;
  for (const Batch& batch : loader) {
    const auto ids = ids_of(batch);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

std::vector<std::int64_t> first_numbers(std::int64_t size) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(BatchLoader, YieldsTheRowsInOrder) {
  BatchLoader loader(Dataset(test::numbers(10)), {.batch_size = 4});
  EXPECT_EQ(loader.size(), 3);
  EXPECT_EQ(epoch_of(loader), first_numbers(10));
  BatchLoader whole(Dataset(test::numbers(10)), {.batch_size = 4, .drop_last = true});
  EXPECT_EQ(whole.size(), 2);
  EXPECT_EQ(epoch_of(whole), first_numbers(8));
}

TEST(BatchLoader, FollowsThePermutationOfItsEpoch) {
  BatchLoader loader(Dataset(test::numbers(1000)), {.batch_size = 64, .shuffle = true, .seed = 9});
  for (const std::uint64_t epoch : {0U, 1U, 2U}) {
    std::vector<std::int64_t> expected(1000);
    Permutation(1000, 9, epoch).fill(0, expected);
    EXPECT_EQ(epoch_of(loader), expected);
  }
  EXPECT_EQ(loader.epoch(), 3);
}

TEST(BatchLoader, IsIndependentOfTheNumberOfThreads) {
  std::vector<std::int64_t> expected;
  for (const int threads : {1, 2, 3, 8}) {
    for (const std::int64_t prefetch : {0, 1, 5}) {
      BatchLoader loader(Dataset(test::numbers(997)), {.batch_size = 10,
                                                       .shuffle = true,
                                                       .seed = 4,
                                                       .prefetch = prefetch,
                                                       .num_threads = threads});
      const std::vector<std::int64_t> found = epoch_of(loader);
      if (expected.empty()) expected = found;
      EXPECT_EQ(found, expected) << threads << " threads, " << prefetch << " ahead";
    }
  }
}

TEST(BatchLoader, SplitsEachBatchAmongTheRanks) {
  for (const std::int64_t world_size : {1, 2, 3, 7, 64}) {
    std::vector<std::vector<std::int64_t>> steps(11);
    for (std::int64_t rank = 0; rank < world_size; ++rank) {
      BatchLoader loader(
          Dataset(test::numbers(103)),
          {.batch_size = 10, .shuffle = true, .rank = rank, .world_size = world_size});
      EXPECT_EQ(loader.size(), 11);
      std::size_t step = 0;
      for (const Batch& batch : loader) {
        const auto ids = ids_of(batch);
        steps[step].insert(steps[step].end(), ids.begin(), ids.end());
        ++step;
      }
      EXPECT_EQ(step, 11U) << "every rank makes as many steps";
    }
    std::vector<std::int64_t> all;
    for (const auto& ids : steps) all.insert(all.end(), ids.begin(), ids.end());
    std::vector<std::int64_t> expected(103);
    Permutation(103, 0, 0).fill(0, expected);
    EXPECT_EQ(all, expected) << world_size;
  }
}

TEST(BatchLoader, ResumesInTheMiddleOfAnEpochWithAnotherBatchSize) {
  BatchLoader first(Dataset(test::numbers(100)), {.batch_size = 8, .shuffle = true, .seed = 5});
  epoch_of(first);
  std::vector<std::int64_t> seen;
  auto stream = first.start();
  for (int i = 0; i < 5; ++i) {
    const auto ids = ids_of(*first.next(*stream));
    seen.insert(seen.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(first.state_dict(), R"({"seed":5,"epoch":1,"position":40})");

  BatchLoader second(Dataset(test::numbers(100)), {.batch_size = 7, .shuffle = true, .seed = 99});
  second.load_state_dict(first.state_dict());
  const auto rest = epoch_of(second);
  seen.insert(seen.end(), rest.begin(), rest.end());
  std::vector<std::int64_t> expected(100);
  Permutation(100, 5, 1).fill(0, expected);
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(second.state_dict(), R"({"seed":5,"epoch":2,"position":0})");
}

TEST(BatchLoader, RestartsTheSameEpochAfterABreak) {
  BatchLoader loader(Dataset(test::numbers(100)), {.batch_size = 10, .shuffle = true});
  std::vector<std::int64_t> first;
  for (const Batch& batch : loader) {
    first = ids_of(batch);
    break;
  }
  EXPECT_EQ(loader.epoch(), 0);
  EXPECT_EQ(ids_of(*loader.begin()), first);
}

TEST(BatchLoader, SeparatesTwoStreams) {
  BatchLoader loader(Dataset(test::numbers(50)), {.batch_size = 10});
  auto a = loader.start();
  loader.next(*a);
  auto b = loader.start();
  loader.next(*b);
  EXPECT_THAT(ids_of(*loader.next(*a)), testing::Contains(10));
  EXPECT_EQ(loader.state_dict(), R"({"seed":0,"epoch":0,"position":10})") << "of the newest";
}

TEST(BatchLoader, EndsImmediatelyWithoutRows) {
  BatchLoader loader(Dataset(test::numbers(0)), {.batch_size = 10, .shuffle = true});
  EXPECT_EQ(loader.size(), 0);
  EXPECT_TRUE(epoch_of(loader).empty());
}

TEST(BatchLoader, BatchesLiveAsLongAsTheyAreReferenced) {
  BatchLoader loader(Dataset(test::numbers(500)), {.batch_size = 5, .num_threads = 3});
  std::vector<Batch> held;
  for (Batch& batch : loader) held.push_back(std::move(batch));
  for (std::size_t i = 0; i < held.size(); ++i) {
    ASSERT_EQ(ids_of(held[i])[0], static_cast<std::int64_t>(i * 5));
  }
}

TEST(BatchLoader, CanBeDestroyedAtAnyTime) {
  for (int i = 0; i < 50; ++i) {
    BatchLoader loader(Dataset(test::numbers(1000)), {.batch_size = 10, .num_threads = 4});
    auto stream = loader.start();
    for (int k = 0; k < i % 4; ++k) loader.next(*stream);
  }
}

TEST(BatchLoader, ThreadsThatShareAnIteratorGetEachBatchOnceAndAllEnd) {
  constexpr std::int64_t kRows = 1000;
  for (const int num_threads : {1, 2, 4}) {
    for (const std::int64_t prefetch : {0, 2, 7}) {
      BatchLoader loader(Dataset(test::numbers(kRows)),
                         {.batch_size = 3, .prefetch = prefetch, .num_threads = num_threads});
      for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
        const auto stream = loader.start();
        std::mutex mutex;
        std::vector<std::int64_t> rows;
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i) {
          threads.emplace_back([&] {
            while (const auto batch = loader.next(*stream)) {
              const std::vector<std::int64_t> some = ids_of(*batch);
              const std::lock_guard lock(mutex);
              rows.insert(rows.end(), some.begin(), some.end());
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
        std::sort(rows.begin(), rows.end());
        ASSERT_EQ(rows, first_numbers(kRows)) << num_threads << " threads, prefetch " << prefetch;
        ASSERT_EQ(loader.epoch(), epoch + 1);
        ASSERT_EQ(loader.stats().rows, kRows);
      }
    }
  }
}

TEST(BatchLoader, AFailedBatchThrowsWhenItIsRequested) {
  TensorDict tree = test::ragged();
  tree.set("tokens.end", test::ints({2, 1, 5, 6}));
  for (const int threads : {1, 3}) {
    BatchLoader loader(Dataset(tree), {.batch_size = 1, .num_threads = threads});
    auto stream = loader.start();
    EXPECT_NO_THROW(loader.next(*stream));
    EXPECT_THROW(loader.next(*stream), Error);
  }
}

#if !TENFOLD_TSAN
TEST(BatchLoader, RefusesAnIteratorOfTheParentInAForkedChild) {
  BatchLoader loader(Dataset(test::numbers(1000)), {.batch_size = 10, .num_threads = 3});
  for (int i = 0; i < 20; ++i) {
    auto stream = loader.start();
    loader.next(*stream);
    // The fork happens while the threads are starting in the first rounds, and while they wait for
    // work in later ones.
    std::this_thread::sleep_for(std::chrono::microseconds(i * i * 20));
    const pid_t child = ::fork();
    if (child == 0) {
      int code = 1;
      try {
        loader.next(*stream);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::unsupported) code = 2;
      }
      stream.reset();  // must not wait for threads, which exist only in the parent
      auto fresh = loader.start();
      if (code == 2 && ids_of(*loader.next(*fresh))[0] == 0) code = 0;
      ::_exit(code);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}
#endif

TEST(BatchLoader, AcceptsExtremeOptionsWithoutOverflow) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  BatchLoader large(Dataset(test::numbers(10)), {.batch_size = kMax});
  EXPECT_EQ(large.size(), 1);
  EXPECT_EQ(epoch_of(large), first_numbers(10));
  large.load_state_dict(R"({"seed":0,"epoch":0,"position":4})");
  EXPECT_THAT(epoch_of(large), ElementsAre(4, 5, 6, 7, 8, 9));
  BatchLoader none(Dataset(test::numbers(10)), {.batch_size = kMax, .drop_last = true});
  EXPECT_EQ(none.size(), 0);
  EXPECT_THAT(epoch_of(none), ElementsAre());
  for (const std::int64_t block : {std::int64_t{11}, std::int64_t{1} << 58, kMax}) {
    BatchLoader blocks(Dataset(test::numbers(10)), {.shuffle = true, .shuffle_block = block});
    std::vector<std::int64_t> rows = epoch_of(blocks);
    std::sort(rows.begin(), rows.end());
    EXPECT_EQ(rows, first_numbers(10)) << block;
    EXPECT_EQ(blocks.stats().shuffle_window_rows, 10);
  }
  BatchLoader last(Dataset(test::numbers(10)),
                   {.batch_size = 10,
                    .rank = std::numeric_limits<std::int32_t>::max() - 1,
                    .world_size = std::numeric_limits<std::int32_t>::max()});
  EXPECT_THAT(epoch_of(last), ElementsAre(9));
  EXPECT_THROW(BatchLoader(Dataset(test::numbers(10)), {.world_size = kMax}), Error);
  EXPECT_THROW(large.set_epoch(kMax), Error);
  EXPECT_THROW(large.load_state_dict(R"({"seed":0,"epoch":9223372036854775807,"position":0})"),
               Error);
  large.set_epoch(kMax / 2 + 1);
  epoch_of(large);
  EXPECT_EQ(large.epoch(), 0);  // after the last one
}

TEST(BatchLoader, LoadsAStateWithAnySeed) {
  for (const std::uint64_t seed : {std::uint64_t{1} << 63U, ~std::uint64_t{0}}) {
    const BatchLoaderOptions options{.shuffle = true, .seed = seed};
    BatchLoader first(Dataset(test::numbers(100)), options);
    BatchLoader second(Dataset(test::numbers(100)), {.shuffle = true});
    second.load_state_dict(first.state_dict());
    EXPECT_EQ(second.state_dict(), first.state_dict());
    EXPECT_EQ(epoch_of(second), epoch_of(first));
  }
}

TEST(BatchLoader, RefusesInvalidOptionsAndStates) {
  const auto make = [](BatchLoaderOptions options) {
    return BatchLoader(Dataset(test::numbers(10)), std::move(options));
  };
  EXPECT_THROW(make({.batch_size = 0}), Error);
  EXPECT_THROW(make({.rank = 2, .world_size = 2}), Error);
  EXPECT_THROW(make({.world_size = 0}), Error);
  EXPECT_THROW(make({.prefetch = -1}), Error);
  EXPECT_THROW(make({.shuffle_block = -1}), Error);
  EXPECT_THROW(make({.columns = {"nope"}}), Error);
  BatchLoader loader = make({});
  for (const char* state :
       {"", "[]", "{}", R"({"seed":0,"epoch":0,"position":11})",
        R"({"seed":18446744073709551616,"epoch":0,"position":0})",
        R"({"seed":-9223372036854775809,"epoch":0,"position":0})",
        R"({"seed":0,"epoch":-1,"position":0})", R"({"seed":0.5,"epoch":0,"position":0})"}) {
    EXPECT_THROW(loader.load_state_dict(state), Error) << state;
  }
  const auto message = [&](const char* state) -> std::string {
    try {
      loader.load_state_dict(state);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(R"({"seed":7,"epoch":9223372036854775808,"position":0})"),
            "batch loader: state: member \"epoch\": expected an int from 0 to 2^62, found "
            "9223372036854775808");
  EXPECT_EQ(message(R"({"seed":-1,"epoch":0,"position":0})"),
            "batch loader: state: member \"seed\": expected an int from 0 to 2^64 - 1, found -1");
}

TEST(BatchLoader, RefusesToPadAColumnWhoseLengthsHaveTheNameOfAnother) {
  const TensorDict tree = test::ragged();
  const Dataset ds = Dataset(tree).rename({{"age", {"tokens.length"}}});
  const std::string message =
      "pad: column \"tokens\": the lengths of its rows are named \"tokens.length\" in batches: "
      "expected no other column of that name, found one; rename \"tokens.length\", or select "
      "columns without it";
  for (const BatchOptions& pad : {BatchOptions{.pad_all = PadValue(std::int64_t{0})},
                                  BatchOptions{.pad = {{"tokens", PadValue(std::int64_t{0})}}}}) {
    test::expect_error(ErrorCode::invalid_argument, message,
                       [&] { static_cast<void>(ds.rows(0, 4, pad)); });
    test::expect_error(ErrorCode::invalid_argument, message,
                       [&] { BatchLoader(ds, {.batch_size = 4, .batch = pad}); });
    BatchLoader selected(ds, {.batch_size = 4, .columns = {"tokens", "name"}, .batch = pad});
    EXPECT_TRUE((*selected.begin()).column("tokens").is_padded);
  }
}

TEST(BatchLoader, RefusesTooManyBatchesAheadAndANegativeNumberOfThreads) {
  const Dataset ds(test::numbers(4));
  const auto expect_refused = [&](const BatchLoaderOptions& options, const char* message) {
    test::expect_error(ErrorCode::invalid_argument, message, [&] { BatchLoader(ds, options); });
  };
  expect_refused({.prefetch = 1025}, "prefetch: expected 0 to 1024, found 1025");
  expect_refused({.num_threads = -5}, "num_threads: expected 0 or more, found -5");
  EXPECT_EQ(BatchLoader(ds, {.prefetch = 1024}).size(), 4);
}

TEST(BatchLoader, IsARangeOfTheStandardLibrary) {
  static_assert(std::ranges::input_range<BatchLoader>);
  static_assert(std::ranges::input_range<Windows>);
  BatchLoader loader(Dataset(test::numbers(5)), {.batch_size = 2});
  std::vector<std::int64_t> sizes;
  for (const std::int64_t size : loader | std::views::transform(&Batch::num_rows)) {
    sizes.push_back(size);
  }
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{2, 2, 1}));
}

}  // namespace
}  // namespace tenfold
