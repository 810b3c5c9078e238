#include "checkpoint/document.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "support/files.hpp"

namespace tenfold::checkpoint {
namespace {

using ::testing::HasSubstr;

CheckpointInfo sample() {
  CheckpointInfo info;
  info.step = 500;
  info.seq = 7;
  info.lineage = {{"aa", 300}, {"bb", 500}};
  info.time = "2026-01-02T03:04:05.678+00:00";
  info.metrics = {{"loss", 0.25}, {"bad", -std::numeric_limits<double>::infinity()}};
  info.extra = Value("note");
  info.versions = Value::Object{{{"tenfold", Value("0.1.0")}}};
  CheckpointEntry model;
  model.name = "model";
  model.path = "model.safetensors";
  model.format = "safetensors";
  model.num_bytes = 123;
  model.checksum = "0123456789abcdef";
  CheckpointEntry bare = model;
  bare.name = "scale";
  bare.path = "scale.safetensors";
  bare.is_bare = true;
  info.entries = {model, bare};
  return info;
}

TEST(CheckpointDocument, RoundTripsItsEntries) {
  const std::string text = write_document(sample());
  const CheckpointInfo found = parse_document(text, "c");
  EXPECT_EQ(write_document(found), text);
  EXPECT_EQ(found.lineage, sample().lineage);
  EXPECT_EQ(found.metrics, sample().metrics);
  EXPECT_TRUE(found.entries[1].is_bare);
  EXPECT_FALSE(found.saved_ns);
  EXPECT_NO_THROW(require_checksum(text, "x.json"));
}

TEST(CheckpointDocument, TheTimeOfTheSaveRoundTrips) {
  CheckpointInfo info = sample();
  info.saved_ns = 1'790'000'000'000'000'001;
  const std::string text = write_document(info);
  EXPECT_THAT(text, HasSubstr("\n\"saved_ns\": 1790000000000000001,\n"));
  EXPECT_EQ(parse_document(text, "c").saved_ns, info.saved_ns);
}

TEST(CheckpointDocument, EntriesOfARankAreInItsFolder) {
  CheckpointInfo info = sample();
  info.world_size = 3;
  for (const std::int64_t rank : {0, 2}) {
    CheckpointEntry own = info.entries[0];
    own.rank = rank;
    own.path = rank_folder(rank) + "model.safetensors";
    info.entries.push_back(own);
  }
  const std::string text = write_document(info);
  const CheckpointInfo found = parse_document(text, "c");
  EXPECT_EQ(write_document(found), text);
  EXPECT_EQ(found.entries[3].rank, 2);
  EXPECT_FALSE(found.entries[0].rank);
  const auto error_with = [&](std::int64_t rank, const std::string& path) {
    CheckpointInfo wrong = info;
    wrong.entries[3].rank = rank;
    wrong.entries[3].path = path;
    try {
      parse_document(write_document(wrong), "c");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_with(3, "ranks/3/a"), HasSubstr("less than the world size 3, found 3"));
  EXPECT_THAT(error_with(-1, "ranks/-1/a"),
              HasSubstr("member \"entries[3].rank\": expected an integer"));
  for (const char* path : {"a", "ranks/1/a", "ranks/2/", "ranks/2/..", "ranks/2/../../a",
                           "ranks/2/a/b", "ranks/2//a", "/ranks/2/a", "ranks/02/a"}) {
    EXPECT_THAT(error_with(2, path), HasSubstr("below \"ranks/2/\"")) << path;
  }
  EXPECT_THAT(error_with(0, "ranks/0/other"), HasSubstr("each name and path once"));
}

TEST(CheckpointDocument, RefusesASeqThatTheNextSaveCannotExceed) {
  CheckpointInfo info = sample();
  info.seq = std::numeric_limits<std::int64_t>::max();
  try {
    parse_document(write_document(info), "c");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "c: member \"seq\": expected an integer of at most 2^62, found "
                 "9223372036854775807");
  }
}

TEST(CheckpointDocument, IgnoresUnknownMembers) {
  std::string text = write_document(sample());
  text.insert(2, "\"later\": [1, {}],\n");
  EXPECT_EQ(parse_document(text, "c").step, 500);
  try {
    require_checksum(text, "c");
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("c: checksum: expected "));
    EXPECT_EQ(error.remedy(), "the file is damaged, or was edited by hand");
  }
}

TEST(CheckpointDocument, ADocumentWithoutAChecksumIsRead) {
  std::string text = write_document(sample());
  text.erase(text.rfind(",\n\"checksum\""));
  text += "\n}\n";
  EXPECT_EQ(parse_document(text, "c").seq, 7);
  EXPECT_NO_THROW(require_checksum(text, "x.json"));
}

TEST(CheckpointDocument, RefusesANewerVersion) {
  std::string text = write_document(sample());
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 9");
  try {
    parse_document(text, "run/step_1/checkpoint.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("run/step_1/checkpoint.json"));
    EXPECT_THAT(error.what(), HasSubstr("expected 1 at most, found 9"));
  }
}

TEST(CheckpointDocument, InvalidDocumentsAreRefusedByName) {
  const std::filesystem::path folder = std::string(TENFOLD_TEST_DATA) + "/checkpoint/hostile";
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().filename().string());
    ++count;
    try {
      parse_document(test::read_bytes(entry.path()), entry.path().string());
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported);
      EXPECT_THAT(error.what(), HasSubstr(entry.path().string() + ": "));
    }
  }
  EXPECT_GE(count, 20U);
}

TEST(CheckpointDocument, EntryPathsMustBeInsideTheStep) {
  for (const std::string path :
       {"", ".", "..", "a/b", "/etc/passwd", ".hidden", "checkpoint.json"}) {
    EXPECT_FALSE(is_entry_path(path)) << path;
  }
  EXPECT_FALSE(is_entry_path(std::string("a\0b", 3)));
  EXPECT_FALSE(is_entry_path(std::string(256, 'a')));
  EXPECT_TRUE(is_entry_path("model.safetensors"));
}

}  // namespace
}  // namespace tenfold::checkpoint
