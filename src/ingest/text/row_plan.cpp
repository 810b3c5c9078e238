#include "ingest/text/row_plan.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <tenfold/value.hpp>

#include "codecs/json/json.hpp"
#include "core/value/value_json.hpp"

namespace tenfold {
namespace {

Field& field_of(Field& parent, const std::string& name) {
  const auto [found, is_new] = parent.by_name.try_emplace(name, parent.fields.size());
  if (is_new) {
    Field field;
    field.name = name;
    field.full_name = parent.full_name.empty() ? name : parent.full_name + "." + name;
    field.quoted = to_json(Value(name), codecs::JsonStyle::utf8_compact);
    const std::size_t count = std::min(field.quoted.size(), sizeof(field.head));
    std::memcpy(&field.head, field.quoted.data(), count);
    std::memset(&field.head_mask, 0xFF, count);
    parent.fields.push_back(std::move(field));
  }
  return parent.fields[found->second];
}

void number_fields(Field& field, std::size_t& next) {
  field.number = next++;
  for (std::size_t i = 0; i < field.fields.size(); ++i) {
    number_fields(field.fields[i], next);
    if (!field.fields[i].required.empty()) field.required_fields.push_back(i);
  }
}

}  // namespace

std::vector<Column> RowPlan::columns() const {
  std::vector<Column> made;
  for (const Target& target : targets) made.push_back(target.column);
  return made;
}

RowPlan plan_of(const Schema& schema) {
  RowPlan plan;
  plan.ignores_new_columns = true;
  plan.is_final = true;
  plan.is_given = true;
  for (const Column& column : schema.columns()) {
    Target target;
    target.column = column;
    target.takes_bools = true;
    if (column.is_text()) {
      target.form = column.ragged ? Form::text_list : Form::text;
      target.takes_json = true;
    } else if (column.ragged || !column.shape.empty()) {
      target.form = Form::list;
    }
    plan.targets.push_back(std::move(target));
  }
  index_fields(plan);
  return plan;
}

void index_fields(RowPlan& plan) {
  plan.root = Field();
  for (std::size_t i = 0; i < plan.targets.size(); ++i) {
    const bool is_required = plan.is_given && !plan.targets[i].column.nullable;
    Field* field = &plan.root;
    for (const std::string& key : plan.targets[i].column.path) {
      field = &field_of(*field, key);
      if (is_required) field->required.push_back(i);
    }
    field->target = i;
  }
  for (const KeyPath& path : plan.empty_records) {
    Field* field = &plan.root;
    for (const std::string& key : path) field = &field_of(*field, key);
  }
  plan.num_fields = 0;
  number_fields(plan.root, plan.num_fields);
}

}  // namespace tenfold
