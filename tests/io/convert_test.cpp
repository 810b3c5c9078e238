#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "io/rename.hpp"
#include "io/sample_trees.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"
#include "support/values.hpp"
#include "support/warnings.hpp"

namespace tenfold {
namespace {

using test::bytes_of;
using test::counting;
using test::difference;
using test::node_of;
using test::sample_checkpoint;
using test::sample_state_dict;
using test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;

std::string file_bytes(const Path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(Convert, RoundTripsThroughFoldersAndSafetensors) {
  const test::TemporaryFolder folder;
  const Path first = save(sample_checkpoint(), folder / "a.safetensors");
  convert(first, folder / "b");
  convert(folder / "b", folder / "c.safetensors.index.json");
  const ConvertReport report =
      convert(folder / "c.safetensors.index.json", folder / "d.safetensors");
  EXPECT_EQ(difference(sample_checkpoint(), load(folder / "b")), "");
  EXPECT_EQ(difference(sample_checkpoint(), load(folder / "c.safetensors.index.json")), "");
  EXPECT_EQ(difference(sample_checkpoint(), load(folder / "d.safetensors")), "");
  EXPECT_EQ(report.num_leaves, 4U);
  EXPECT_EQ(report.num_bytes, 4U * (12 + 12 + 4 + 12));
  EXPECT_EQ(file_bytes(first), file_bytes(folder / "d.safetensors"));
}

TEST(Convert, KeepsSharedStorage) {
  const test::TemporaryFolder folder;
  save(sample_checkpoint(), folder / "a.safetensors");
  convert(folder / "a.safetensors", folder / "b");
  const TensorDict tree = load(folder / "b");
  EXPECT_EQ(tree.at("model", "embed.weight").raw_data(),
            tree.at("model", "head.weight").raw_data());
}

TEST(Convert, RemovesASchemaThatTheConvertedTensorsContradict) {
  TensorDict table = node_of(NodeKind::tensordict);
  table.info().batch_size = {2};
  table.set("x", counting({2, 3}));
  table.set("s", Tensor::zeros(DType::uint8, {5}));
  table.set("s.end", Tensor::from(std::vector<std::int64_t>{2, 5}));
  table.info().schema = Schema::from_json(R"({"columns": {"x": {"dtype": "float32", "shape": [3]},
                                              "s": {"dtype": "string"}}})",
                                          "")
                            .to_value();
  std::get<Value::Object>(table.info().schema->data()).members.emplace_back("other", Value(1));
  const test::TemporaryFolder folder;
  const Path source = save(table, folder / "table");
  ASSERT_TRUE(verify(source).ok());
  const auto schema_after = [&](const ConvertOptions& options) {
    convert(source, folder / "out", options);
    EXPECT_TRUE(verify(folder / "out").ok());
    return open(folder / "out").info().schema;
  };
  const auto only = [](const char* columns) {
    Value schema = Schema::from_json(std::string(R"({"columns": )") + columns + "}", "").to_value();
    std::get<Value::Object>(schema.data()).members.emplace_back("other", Value(1));
    return schema;
  };
  const Value only_x = only(R"({"x": {"dtype": "float32", "shape": [3]}})");
  EXPECT_EQ(schema_after({.keys = {"x"}}), only_x);
  EXPECT_EQ(schema_after({.exclude = {"s"}}), only_x);
  EXPECT_EQ(schema_after({.keys = {"s"}}), only(R"({"s": {"dtype": "string"}})"));
  EXPECT_EQ(schema_after({.exclude = {"s.end"}}), std::nullopt);
  EXPECT_EQ(schema_after({.dtype = DType::float16}), std::nullopt);
  EXPECT_EQ(schema_after({.keys = {"s"},
                          .rename = [](const std::string& key) { return key == "s" ? "t" : key; }}),
            only(R"({"t": {"dtype": "string"}})"));
  EXPECT_EQ(schema_after({.keys = {"x", "s*"}, .dtype = DType::float32}), table.info().schema);
  EXPECT_EQ(schema_after({.rename = [](const std::string& key) { return key; }}),
            table.info().schema);
  EXPECT_EQ(load(source, {.keys = {"x"}}).info().schema, only_x);
}

TEST(Convert, KeepsSharedStorageThroughACast) {
  const test::TemporaryFolder folder;
  save(sample_checkpoint(), folder / "a");
  ConvertOptions options;
  options.dtype = DType::float16;
  convert(folder / "a", folder / "b.safetensors", options);
  const TensorDict tree = load(folder / "b.safetensors");
  EXPECT_EQ(tree.at("model", "head.weight").dtype(), DType::float16);
  EXPECT_EQ(tree.at("model", "embed.weight").raw_data(),
            tree.at("model", "head.weight").raw_data());
}

TEST(Convert, ViewsOfOneStorageWithTwoDtypesAreNoAliasesAfterACast) {
  const std::vector<std::uint16_t> bits = {0x3C00, 0x4000, 0xC200, 0x3555};
  const Buffer storage = Tensor::from(bits).buffer();
  TensorDict tree = node_of(NodeKind::dict);
  tree.set("half", Tensor(DType::float16, {4}, storage));
  tree.set("bfloat", Tensor(DType::bfloat16, {4}, storage));
  const test::TemporaryFolder folder;
  save(tree, folder / "a");
  ConvertOptions options;
  options.dtype = DType::float32;
  for (const char* target : {"b", "b.safetensors"}) {
    // The bits 0xC200 are -3 in float16, and -32 in bfloat16.
    convert(folder / "a", folder / target, options);
    const TensorDict made = load(folder / target);
    EXPECT_EQ(made.at("half").data<float>()[2], -3.0F) << target;
    EXPECT_EQ(made.at("bfloat").data<float>()[2], -32.0F) << target;
  }
}

TEST(Convert, KeepsFlatNamesFlat) {
  const test::TemporaryFolder folder;
  save(sample_state_dict(), folder / "m.safetensors");
  convert(folder / "m.safetensors", folder / "m");
  EXPECT_THAT(load(folder / "m").keys(),
              ElementsAre("encoder.weight", "encoder.bias", "decoder.weight"));
}

TEST(Convert, CastsFloatingTensorsOnly) {
  const test::TemporaryFolder folder;
  TensorDict tree = node_of(NodeKind::dict);
  std::vector<float> many(300'001);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i % 1000) / 8;
  tree.set("w", Tensor::from(std::span<const float>(many)));
  const std::vector<std::int64_t> steps = {1, 2};
  tree.set("steps", Tensor::from(std::span<const std::int64_t>(steps)));
  save(tree, folder / "a.safetensors");
  ConvertOptions options;
  options.dtype = DType::float64;
  convert(folder / "a.safetensors", folder / "b", options);
  const TensorDict converted = load(folder / "b");
  EXPECT_EQ(converted.at("steps").dtype(), DType::int64);
  const auto values = test::values<double>(converted.at("w"));
  for (std::size_t i = 0; i < many.size(); ++i) ASSERT_EQ(values[i], many[i]) << i;
  options.dtype = DType::int32;
  EXPECT_EQ(thrown_by([&] { convert(folder / "a.safetensors", folder / "c", options); }).code,
            ErrorCode::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(folder / "c"));
}

TEST(Convert, SelectsKeysAndExcludesOthers) {
  const test::TemporaryFolder folder;
  save(sample_checkpoint(), folder / "a");
  ConvertOptions options;
  options.keys = {"model"};
  options.exclude = {"*.bias"};
  convert(folder / "a", folder / "b", options);
  EXPECT_THAT(load(folder / "b")["model"].keys(), ElementsAre("embed.weight", "head.weight"));
}

TEST(Convert, ComparesChecksumsOfTheConvertedEntriesIfRequested) {
  const test::TemporaryFolder folder;
  TensorDict tree;
  tree.set("intact", counting({3}));
  tree.set("damaged", counting({30000}));
  for (const char* name : {"a.safetensors", "a.tdz", "a.npz", "a.pt"}) {
    const Path source = save(tree, folder / name);
    std::string bytes = file_bytes(source);
    bytes[bytes.size() / 2] ^= 1;  // in the data of "damaged"
    test::write_bytes(source, bytes);
    const Path target = folder / "target";
    EXPECT_EQ(thrown_by([&] { convert(source, target, {.verify = true}); }).code,
              ErrorCode::corrupt);
    EXPECT_FALSE(std::filesystem::exists(target));
    convert(source, target, {.keys = {"intact"}, .verify = true});
    EXPECT_EQ(bytes_of(load(target).at("intact")), bytes_of(counting({3})));
    std::filesystem::remove_all(target);
  }
}

TEST(Convert, RenamingReportsBothSourcesOfAClash) {
  const test::TemporaryFolder folder;
  save(sample_state_dict(), folder / "a");
  ConvertOptions options;
  options.rename = [](const std::string& name) { return "net." + name; };
  convert(folder / "a", folder / "b.safetensors", options);
  EXPECT_THAT(load(folder / "b.safetensors").keys(),
              ElementsAre("net.encoder.weight", "net.encoder.bias", "net.decoder.weight"));
  options.rename = [](const std::string& name) { return name.substr(name.find('.') + 1); };
  const auto thrown = thrown_by([&] { convert(folder / "a", folder / "c", options); });
  EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
  EXPECT_THAT(thrown.message,
              HasSubstr("\"encoder.weight\" and \"decoder.weight\" both become \"weight\""));
  EXPECT_FALSE(std::filesystem::exists(folder / "c"));
}

TEST(Convert, ReplacesItsOwnSource) {
  const test::TemporaryFolder folder;
  for (const char* file_name : {"tree", "tree.safetensors"}) {
    const Path path = save(sample_state_dict(), folder / file_name);
    ConvertOptions options;
    options.dtype = DType::float64;
    convert(path, path, options);
    EXPECT_EQ(load(path).at("encoder.bias").data<double>()[1], 51) << file_name;
    EXPECT_TRUE(verify(path).ok()) << file_name;
  }
}

TEST(RenamedPath, KeepsKeysThatDidNotChange) {
  EXPECT_THAT(renamed_path({"a.b"}, "c.d", true), ElementsAre("c.d"));
  EXPECT_THAT(renamed_path({"model", "w"}, "net.w", false), ElementsAre("net", "w"));
  EXPECT_THAT(renamed_path({"model", "module.enc.w"}, "model.enc.w", false),
              ElementsAre("model", "enc.w"));
  EXPECT_THAT(renamed_path({"model", "module.enc.w"}, "module.enc.w", false),
              ElementsAre("module.enc.w"));
  EXPECT_THAT(renamed_path({"w"}, "model.w", false), ElementsAre("model", "w"));
  EXPECT_THAT(renamed_path({"a", "x", "b"}, "a.b", false), ElementsAre("a", "b"));
  EXPECT_THAT(renamed_path({"a", "b"}, "b", false), ElementsAre("b"));
  EXPECT_THAT(renamed_path({"a", "b"}, "p.q.r", false), ElementsAre("p", "q", "r"));
}

TEST(RenameLeaves, KeepsKindsOfNodes) {
  const TensorDict renamed = rename_leaves(sample_checkpoint(), [](const std::string& name) {
    return name == "model.head.bias" ? std::string("model.bias") : name;
  });
  EXPECT_THAT(renamed["model"].keys(), ElementsAre("embed.weight", "head.weight", "bias"));
  EXPECT_EQ(renamed["model"].kind(), NodeKind::ordered_dict);
  EXPECT_TRUE(renamed["optimizer"]["state"].info().int_keys);
  EXPECT_EQ(renamed.value("epoch"), Value(3));
}

TEST(RenameLeaves, KeepsTheTypesOfTheOtherKeys) {
  TensorDict list = node_of(NodeKind::list);
  TensorDict by_number = node_of(NodeKind::dict, true);
  for (const char* key : {"0", "1"}) {
    list.set(key, counting({2}));
    by_number.set(key, counting({2}));
  }
  TensorDict tree = node_of(NodeKind::dict);
  tree.set("list", list);
  tree.set("by_number", by_number);
  const test::TemporaryFolder folder;
  save(tree, folder / "a");
  ConvertOptions options;
  options.rename = [](const std::string& name) {
    return name.ends_with(".0") ? name.substr(0, name.size() - 1) + "first" : name;
  };
  convert(folder / "a", folder / "b", options);
  const test::Warnings warnings;
  const TensorDict renamed = load(folder / "b");
  for (const char* key : {"list", "by_number"}) {
    EXPECT_EQ(renamed[key].kind(), NodeKind::dict) << key;
    EXPECT_THAT(renamed[key].keys(), ElementsAre("first", "1")) << key;
    EXPECT_EQ(renamed[key].info().typed_keys, (TypedKeys{{"1", 1}})) << key;
  }
  EXPECT_TRUE(warnings.all().empty());
}

TEST(RenameLeaves, AcceptsUnchangedEntriesWithOneDottedName) {
  TensorDict node;
  node.set("x", counting({2}));
  TensorDict tree;
  tree.set("n", node);
  tree.set("n.x", counting({3}));
  tree.set("a", counting({1}));
  const auto rename = [&](const std::string& from, const std::string& to) {
    return rename_leaves(tree, [&](const std::string& name) { return name == from ? to : name; });
  };
  const TensorDict renamed = rename("a", "b");
  EXPECT_THAT(renamed.keys(), ElementsAre("n", "n.x", "b"));
  EXPECT_THAT(renamed["n"].keys(), ElementsAre("x"));
  EXPECT_EQ(thrown_by([&] { rename("n.x", "c"); }).code, ErrorCode::invalid_argument);
}

TEST(RenameLeaves, RefusesATensorAtThePathOfANode) {
  const auto thrown = thrown_by([] {
    rename_leaves(sample_checkpoint(), [](const std::string& name) {
      return name == "epoch" ? std::string("model") : name;
    });
  });
  EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
  EXPECT_THAT(thrown.message,
              HasSubstr("\"epoch\" becomes \"model\", which is a node: it will contain the "
                        "source's \"model."));
}

/// Renames the tensor `from` ("a" or "n.x") of a sample tree to `to`. Returns the error.
auto thrown_by_renaming(const std::string& from, const std::string& to) {
  TensorDict node;
  node.set("x", counting({2}));
  TensorDict tree;
  tree.set("a", counting({1}));
  tree.set("n", node);
  return thrown_by([&] {
    rename_leaves(tree, [&](const std::string& name) { return name == from ? to : name; });
  });
}

TEST(RenameLeaves, RefusesANodeAtThePathOfATensor) {
  const auto thrown = thrown_by_renaming("n.x", "a.x");
  EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
  EXPECT_THAT(thrown.message, HasSubstr("\"n.x\" becomes \"a.x\", but \"a\" is no node"));
}

TEST(RenameLeaves, RefusesATensorAtThePathOfAnEmptyNode) {
  for (const bool is_empty_first : {false, true}) {
    TensorDict node;
    node.set("x", counting({2}));
    TensorDict tree;
    if (is_empty_first) tree.set("empty", TensorDict());
    tree.set("n", node);
    if (!is_empty_first) tree.set("empty", TensorDict());
    const auto renamed_to = [&](const std::string& to) {
      return rename_leaves(tree, [&](const std::string&) { return to; });
    };
    const auto thrown = thrown_by([&] { renamed_to("empty"); });
    EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
    EXPECT_THAT(thrown.message, HasSubstr("both become \"empty\""));
    EXPECT_THAT(renamed_to("empty.x")["empty"].keys(), ElementsAre("x"));
    EXPECT_TRUE(tree["empty"].empty());
    EXPECT_TRUE(renamed_to("y")["empty"].empty());
  }
}

TEST(RenameLeaves, RefusesTwoEntriesWithOneDottedName) {
  const auto thrown = thrown_by_renaming("a", "n.x");
  EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
  EXPECT_THAT(thrown.message, HasSubstr("\"a\" and \"n.x\" both become \"n.x\""));
}

}  // namespace
}  // namespace tenfold
