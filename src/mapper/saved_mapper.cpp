#include "mapper/saved_mapper.hpp"

#include <cstddef>
#include <ranges>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/value/value_reader.hpp"
#include "dataset/gather_rows.hpp"
#include "mapper/hierarchy_json.hpp"
#include "mapper/saved_sparse.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::string_view kHead = "state_mapper";
constexpr std::string_view kTensors = "tensors";

/// The type of a value for messages; "none" if there is no value.
std::string_view type_of(const Value* value) {
  return value == nullptr ? std::string_view("none") : value->type_name();
}

base::Where where_of(const TensorDict& tree) {
  return tree.where().empty() ? base::Where("", "state mapper") : tree.where();
}

/// Describes an entry that is missing ("none") or of an unexpected kind, for messages.
std::string_view entry_text(const TensorDict& tree, std::string_view key) {
  return tree.contains(key) ? "an entry of another kind" : "none";
}

std::string first_keys(const TensorDict& tree) {
  constexpr std::size_t kShownKeys = 5;
  std::string text;
  for (const std::string& key : tree.keys() | std::views::take(kShownKeys)) {
    text += (text.empty() ? "" : ", ") + base::quote(key);
  }
  return text.empty() ? "an empty tree" : text;
}

std::shared_ptr<const SavedMapper> saved_module(MapperHead head, TensorDict tensors) {
  const Value* arguments = head.find("config");
  if (arguments == nullptr || !arguments->is<Value::Object>()) {
    throw head.corrupt("config")
        .part("config")
        .expected("the arguments of a factory")
        .found(type_of(arguments));
  }
  auto made = std::make_shared<SavedMapper>(head, MapperKind::module, std::move(tensors));
  made->factory = head.text("factory");
  made->arguments = *arguments;
  return made;
}

std::shared_ptr<const SavedMapper> saved_of(const TensorDict& tree) {
  MapperHead head = head_of(tree, where_of(tree));
  TensorDict tensors = tensors_of(head, tree);
  if (head.class_name == "tenfold.SparseStateMapper") {
    return saved_sparse(std::move(head), std::move(tensors));
  }
  if (head.class_name == "tenfold.HierarchicalStateMapper") {
    return saved_hierarchy(std::move(head), std::move(tensors));
  }
  if (head.class_name == "tenfold.ModuleStateMapper") {
    return saved_module(std::move(head), std::move(tensors));
  }
  return std::make_shared<SavedMapper>(std::move(head), MapperKind::other, std::move(tensors));
}

}  // namespace

MapperHead head_of(const TensorDict& tree, base::Where where) {
  MapperHead head;
  head.where = std::move(where);
  if (!tree.contains(kHead)) {
    throw base::unsupported(head.where)
        .problem("no state mapper")
        .expected("an entry \"state_mapper\"")
        .found(first_keys(tree));
  }
  const TensorDict::Item item = tree.get(kHead);
  const auto* json = std::get_if<NonTensor>(&item);
  if (json == nullptr || !json->value.is<Value::Object>()) {
    throw head.corrupt(kHead).expected("a JSON object").found("an entry of another kind");
  }
  const base::Where place = head.where.at(kHead);
  const ValueReader reader(json->value, place);
  reader.at("version").require_version(kVersion);
  head.class_name = reader.at("class").text();
  const ValueReader config = reader.at("config");
  const auto* object = config.value().get_if<Value::Object>();
  if (object == nullptr || object->int_keys || !object->typed_keys.empty()) {
    config.fail("an object with strings as keys");
  }
  head.config = config.value();
  return head;
}

TensorDict tensors_of(const MapperHead& head, const TensorDict& tree) {
  if (!tree.contains(kTensors)) return TensorDict();
  return node_of(head, tree, kTensors);
}

const Value* MapperHead::find(std::string_view key) const {
  const auto* object = config.get_if<Value::Object>();
  return object == nullptr ? nullptr : object->find(key);
}

const std::string& MapperHead::text(std::string_view key) const {
  const base::Where place = where.at("config");
  return ValueReader(config, place).at(key).text();
}

Tensor SavedMapper::rows(std::span<const Value> /*states*/) const {
  throw base::unsupported(head.where)
      .problem("rows of a \"", head.class_name, "\" are computed by a program")
      .expected("a sparse or hierarchical mapper")
      .found(kind == MapperKind::module ? "a module" : "a class of a Python program")
      .remedy(kind == MapperKind::module
                  ? "build the module, load the mapper's parameters() with load_into(), and call it"
                  : "");
}

Value SavedMapper::value(const Value& /*state*/) const {
  throw base::unsupported(head.where)
      .part("value()")
      .expected("a hierarchy")
      .found("a \"", head.class_name, "\"");
}

TensorDict SavedMapper::tree() const {
  Value::Object object;
  object.members.emplace_back("class", Value(head.class_name));
  object.members.emplace_back("version", Value(kVersion));
  object.members.emplace_back("config", head.config);
  TensorDict tree = TensorDict::dict();
  tree.set(kHead, Value(std::move(object)));
  if (!tensors.empty()) tree.set(kTensors, tensors);
  return tree;
}

StateNames SavedMapper::names_of(std::span<const Value> states) const {
  return {[this] { return head.where; },
          [states](std::size_t i) { return shown_state(states[i]); }};
}

void SavedMapper::save(const Path& path, const SaveOptions& options) const {
  tenfold::save(tree(), path, options);
}

std::string shown_state(const Value& state) {
  const std::string text = to_json(state);
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

TensorDict node_of(const MapperHead& head, const TensorDict& tensors, std::string_view key) {
  try {
    return tensors[key];
  } catch (const Error& error) {
    if (error.code() != ErrorCode::key_not_found) throw;
    throw head.corrupt(key).expected("a tree").found(entry_text(tensors, key));
  }
}

Tensor tensor_of(const MapperHead& head, const TensorDict& tensors, std::string_view key) {
  try {
    return tensors.at(key);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::key_not_found) throw;
    throw head.corrupt(key).expected("a tensor").found(entry_text(tensors, key));
  }
}

Tensor take_rows(const MapperHead& head, const Tensor& values, std::span<const std::int64_t> rows) {
  const Shape& shape = values.shape();
  const std::int64_t num_rows = shape.empty() ? 0 : shape[0];
  for (const std::int64_t row : rows) {
    if (row < 0 || row >= num_rows) {
      throw head.corrupt("table")
          .part("row")
          .expected("at least 0 and less than ", num_rows)
          .found(row);
    }
  }
  Shape made_shape = shape;
  made_shape[0] = static_cast<std::int64_t>(rows.size());
  Tensor made = Tensor::zeros(values.dtype(), std::move(made_shape));
  if (made.numel() == 0) return made;
  const std::uint64_t row_bytes = made.nbytes() / rows.size();
  gather_rows(RowSource{values.raw_data(), row_bytes}, row_bytes, rows, made.mutable_raw_data());
  return made;
}

StateMapper::StateMapper(const TensorDict& tree) : saved_(saved_of(tree)) {}

StateMapper StateMapper::open(const Path& path) {
  return os::read_unreplaced(path, [&] {
    if (const auto text = hierarchy_json_text(path)) {
      auto [head, tensors] = parse_hierarchy_json(*text, path.string());
      return StateMapper(saved_hierarchy(std::move(head), std::move(tensors)));
    }
    return StateMapper(tenfold::open(path));
  });
}

StateMapper StateMapper::hierarchical(const TensorDict& levels, std::string_view default_key) {
  return StateMapper(made_hierarchy(levels, default_key));
}

StateMapper StateMapper::sparse(std::span<const Value> states, const SparseMatrix& matrix,
                                const std::optional<Tensor>& fallback) {
  return StateMapper(made_sparse(make_state_keys(states), matrix, fallback));
}

TensorDict StateMapper::tree() const { return saved_->tree(); }

Path StateMapper::save(const Path& path, const SaveOptions& options) const {
  saved_->save(path, options);
  return path;
}

MapperKind StateMapper::kind() const noexcept { return saved_->kind; }
const std::string& StateMapper::class_name() const noexcept { return saved_->head.class_name; }
const Value& StateMapper::config() const& noexcept {
  return saved_->kind == MapperKind::module ? saved_->arguments : saved_->head.config;
}

Tensor StateMapper::at(const Value& state) const {
  return saved_->rows(std::span(&state, 1)).select(0);
}

Tensor StateMapper::rows(std::span<const Value> states) const { return saved_->rows(states); }
Value StateMapper::value(const Value& state) const { return saved_->value(state); }
std::vector<std::string> StateMapper::mapper_paths() const { return saved_->mapper_paths; }

StateMapper StateMapper::mapper(std::string_view path) const {
  for (std::size_t i = 0; i < saved_->mapper_paths.size(); ++i) {
    if (saved_->mapper_paths[i] == path) return saved_->mappers[i];
  }
  throw base::key_not_found(saved_->head.where).problem("no mapper at ", base::quote(path));
}

const std::string& StateMapper::factory() const {
  if (saved_->kind == MapperKind::module) return saved_->factory;
  throw base::unsupported(saved_->head.where)
      .part("factory()")
      .expected("a module's mapper")
      .found("a \"", saved_->head.class_name, "\"");
}

TensorDict StateMapper::parameters() const { return saved_->tensors; }

}  // namespace tenfold
