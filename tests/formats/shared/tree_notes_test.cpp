#include "formats/shared/tree_notes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "formats/safetensors/support.hpp"
#include "support/message_of.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using test::message_of;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// {"x": int16 [2, 3], "v": {"w": null}, "l": [{"y": int16 [2]}], "s": ["a", "b"]}
TensorDict plain_tree() {
  TensorDict tree(kind(NodeKind::dict));
  tree.set("x", Tensor::zeros(DType::int16, {2, 3}));
  Value::Object object;
  object.members.emplace_back("w", Value());
  tree.set("v", Value(object));
  TensorDict part(kind(NodeKind::dict));
  part.set("y", Tensor::zeros(DType::int16, {2}));
  TensorDict list(kind(NodeKind::list));
  list.set("0", part);
  tree.set("l", list);
  tree.set("s", Value(Value::List{{Value("a"), Value("b")}}));
  return tree;
}

TensorDict applied(const std::string& notes) {
  TensorDict tree = plain_tree();
  apply_tree_notes(notes, "notes", tree);
  return tree;
}

TEST(TreeNotes, APlainTreeNeedsNoNotes) { EXPECT_EQ(tree_notes_of(plain_tree()), ""); }

TEST(TreeNotes, VersionsOfModulesAreKeptIfTheFormatDoesNotStoreThem) {
  const Warnings warnings;
  TensorDict module(kind(NodeKind::ordered_dict));
  module.set("w", Tensor::zeros(DType::int16, {2}));
  TensorDict tree(kind(NodeKind::dict));
  tree.set("m", module);
  TensorDict saved(kind(NodeKind::dict));
  TensorDict versioned(kind(NodeKind::ordered_dict));
  versioned.set("w", Tensor::zeros(DType::int16, {2}));
  versioned.info().module_versions = from_json(R"({"": {"version": 2}})", "test");
  saved.set("m", versioned);
  EXPECT_EQ(tree_notes_of(saved), "");
  const std::string notes = tree_notes_of(saved, ModuleVersions::in_notes);
  EXPECT_EQ(notes, R"({"version": 1, "versions": {"m": {"": {"version": 2}}}})");
  apply_tree_notes(notes, "notes", tree);
  EXPECT_EQ(tree["m"].info().module_versions, versioned.info().module_versions);
  EXPECT_THAT(Warnings::messages(), IsEmpty());
  applied(R"({"version": 1, "versions": {"x": {}, "l": {}, "none": {}}})");
  EXPECT_THAT(Warnings::messages(), testing::SizeIs(3));
}

TEST(TreeNotes, NotesAreApplied) {
  const Warnings warnings;
  const TensorDict tree = applied(
      R"({"version": 1, "nodes": {"": {"kind": "tensordict", "batch_size": [2], "names": ["t"]},
          "v": {"kind": "tensorclass", "class": "C", "batch_size": [2, 9]},
          "l/0": {"kind": "tensordict", "batch_size": [2], "device": "cpu"},
          "l": {"kind": "lazy_stack", "stack_dim": 1, "stack_dim_name": "d"}},
          "stacks": {"s": 0}, "unbatched": ["l/0/y"], "schema": [1], "metadata": {"a": "b"}})");
  EXPECT_THAT(Warnings::messages(), IsEmpty());
  EXPECT_EQ(tree.kind(), NodeKind::tensordict);
  EXPECT_EQ(tree.batch_size(), Shape{2});
  EXPECT_EQ(tree["v"].info().class_name, "C");
  EXPECT_EQ(tree["l"].kind(), NodeKind::lazy_stack);
  EXPECT_EQ(tree["l"].info().stack_dim, 1);
  EXPECT_EQ(tree["l"]["0"].info().device, "cpu");
  EXPECT_TRUE(std::get<Leaf>(tree["l"]["0"].get("y")).is_unbatched());
  EXPECT_TRUE(std::get<NonTensor>(tree.get("s")).is_stack);
  EXPECT_EQ(tree.info().metadata.at("a"), "b");
  EXPECT_TRUE(tree.info().schema.has_value());

  // The notes of the result are the same.
  TensorDict again = plain_tree();
  apply_tree_notes(tree_notes_of(tree), "notes", again);
  EXPECT_EQ(text_of(again), text_of(tree));
}

TEST(TreeNotes, AStackAlongMoreDimensionsThanItsEntriesHaveStaysAList) {
  const Warnings warnings;
  const TensorDict tree = applied(
      R"({"version": 1, "nodes": {"l/0": {"kind": "tensordict", "batch_size": [2]},
          "l": {"kind": "lazy_stack", "stack_dim": 2}}})");
  EXPECT_EQ(tree["l"].kind(), NodeKind::list);
  EXPECT_THAT(Warnings::messages(), ElementsAre(HasSubstr("can be stacked at dimension 2")));
}

TEST(TreeNotes, StaleNotesAreIgnoredWithAWarning) {
  const std::string before = text_of(plain_tree());
  for (const char* member : {
           R"("nodes": {"x": {"kind": "tensordict"}})",
           R"("nodes": {"gone": {"kind": "tensordict"}})",
           R"("nodes": {"gone/x": {"kind": "tensordict"}})",
           R"("nodes": {"%zz": {"kind": "tensordict"}})",
           R"("nodes": {"": {"kind": "tensordict", "batch_size": [3]}})",
           R"("nodes": {"": {"kind": "lazy_stack", "stack_dim": 0}})",
           R"("nodes": {"": {"kind": "dict"}})",
           R"("nodes": {"l": {"kind": "lazy_stack", "stack_dim": 0}})",
           R"("nodes": {"l": {"kind": "tensordict"}})",
           R"("nodes": {"l": {"kind": "lazy_stack", "stack_dim": 63}})",
           R"("stacks": {"x": 0})",
           R"("stacks": {"": 0})",
           R"("unbatched": ["v"])",
           R"("unbatched": ["l/7"])",
           R"("later": [])",
       }) {
    const Warnings warnings;
    EXPECT_EQ(text_of(applied(R"({"version": 1, )" + std::string(member) + "}")), before);
    EXPECT_THAT(Warnings::messages(), ElementsAre(HasSubstr("is ignored: expected"))) << member;
  }
}

TEST(TreeNotes, ATreeThatContainsItselfIsRefused) {
  TensorDict endless;
  endless.set("self", endless);
  EXPECT_THAT(message_of([&] { tree_notes_of(endless); }, ErrorCode::invalid_argument),
              HasSubstr("check whether a node contains itself"));
  endless.set("self", Value());  // otherwise it would keep itself alive
}

TEST(TreeNotes, InvalidDocumentsAreRefused) {
  for (const char* text : {
           "",
           "{",
           "[]",
           "{}",
           R"({"version": "1"})",
           R"({"version": 0})",
           R"({"version": -1})",
           R"({"version": 1, "nodes": []})",
           R"({"version": 1, "nodes": {"": []}})",
           R"({"version": 1, "nodes": {"": {}}})",
           R"({"version": 1, "nodes": {"": {"kind": "tensordict", "batch_size": [-1]}}})",
           R"({"version": 1, "nodes": {"": {"kind": "tensordict", "batch_size": 1}}})",
           R"({"version": 1, "nodes": {"": {"kind": "tensordict", "names": ["a"]}}})",
           R"({"version": 1, "nodes": {"": {"kind": "tensordict", "class": 1}}})",
           R"({"version": 1, "stacks": {"s": -1}})",
           R"({"version": 1, "unbatched": {}})",
           R"({"version": 1, "unbatched": [1]})",
           R"({"version": 1, "metadata": {"a": 1}})",
       }) {
    EXPECT_THAT(message_of([&] { applied(text); }, ErrorCode::corrupt), HasSubstr("notes: "))
        << text;
  }
  EXPECT_THAT(message_of([] { applied(R"({"version": 2})"); }, ErrorCode::unsupported),
              HasSubstr("expected 1, found 2"));
}

}  // namespace
}  // namespace tenfold::test
