#include "ingest/text/value_types.hpp"

#include <utility>

#include "dataset/leaf_names.hpp"

namespace tenfold {
namespace {

/// The column for values of this type. is_typed is false if there are only nulls, empty lists and
/// lists of nulls.
Target target_of(const RowType& type, std::int64_t length) {
  Target target;
  target.column = column_of(type, length);
  target.is_typed = type.has_elements;
  if (type.form == RowForm::json) {
    target.form = Form::json;
  } else if (type.form == RowForm::list) {
    target.form = target.column.is_text() ? Form::text_list : Form::list;
  } else {
    target.form = target.column.is_text() ? Form::text : Form::scalar;
  }
  return target;
}

class Planner {
 public:
  Planner(RowPlan& plan, std::vector<Promotion>& promotions)
      : plan_(plan), promotions_(promotions) {}

  void record(const ValueTypes& types, std::uint64_t num_records, bool nullable) {
    for (const auto& [name, member] : types.members) {
      path_.push_back(name);
      const bool may_miss = nullable || member.has_null || member.num_present < num_records;
      if (member.kind == ValueTypes::Kind::object && member.members.empty()) {
        plan_.empty_records.push_back(path_);
      } else if (member.kind == ValueTypes::Kind::object) {
        record(member, member.num_objects, may_miss);
      } else {
        add(member, may_miss);
      }
      path_.pop_back();
    }
  }

 private:
  void add(const ValueTypes& types, bool nullable) {
    const bool is_list = types.kind == ValueTypes::Kind::list;
    const RowType type = settled(is_list ? types.lists.type() : RowType::of_kinds(types.scalars));
    const RowType first =
        settled(is_list ? types.first_list->type() : RowType::of_kinds(types.first_scalar));
    Target target = target_of(type, is_list ? types.lists.length() : 0);
    target.column.path = path_;
    target.column.nullable = nullable || types.kind == ValueTypes::Kind::none;
    name_leaves(target.column);
    auto promotion =
        promotion_of(target.column.name(), first.has_elements ? first.text() : "", type);
    if (promotion) promotions_.push_back(std::move(*promotion));
    plan_.targets.push_back(std::move(target));
  }

  RowPlan& plan_;
  std::vector<Promotion>& promotions_;
  KeyPath path_;
};

}  // namespace

ValueTypes& ValueTypes::member(std::string_view name) {
  const auto [found, is_new] = by_name.try_emplace(std::string(name), members.size());
  if (is_new) members.push_back({std::string(name), ValueTypes()});
  return members[found->second].types;
}

void ValueTypes::add_null() {
  ++num_present;
  has_null = true;
}

void ValueTypes::add_scalar(ScalarKinds kinds) {
  ++num_present;
  if (kind == Kind::none) kind = Kind::scalar;
  if (first_scalar == 0) first_scalar = kinds;
  scalars |= kinds;
}

void ValueTypes::merge(const ValueTypes& later) {
  num_present += later.num_present;
  num_objects += later.num_objects;
  has_null |= later.has_null;
  if (kind == Kind::none) kind = later.kind;
  if (first_scalar == 0) first_scalar = later.first_scalar;
  scalars |= later.scalars;
  if (!first_list) first_list = later.first_list;
  lists.merge(later.lists);
  for (const auto& [name, types] : later.members) member(name).merge(types);
}

RowPlan plan_of(const ValueTypes& rows, std::vector<Promotion>& promotions) {
  RowPlan plan;
  promotions.clear();
  Planner(plan, promotions).record(rows, rows.num_objects, false);
  index_fields(plan);
  return plan;
}

}  // namespace tenfold
