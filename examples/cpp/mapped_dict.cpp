// A dictionary of vectors on disk.
#include <tenfold/mapped_dict.hpp>

#include <iostream>
#include <string>
#include <vector>

int main() {
  const tenfold::Schema schema(
      {{.path = {"value"}, .dtype = tenfold::DType::float32, .shape = {2}}});
  tenfold::TensorDict rows(tenfold::NodeInfo{.batch_size = {2}});
  rows.set("value", tenfold::Tensor::from<float>({1, 2, 3, 4}, {2, 2}));
  tenfold::MappedDictBuilder builder("words", tenfold::DictKeyType::string, schema);
  builder.append({"house", "garden"}, tenfold::Dataset(rows).rows(0, 2));
  builder.commit();

  const tenfold::MappedDict words("words");
  const std::vector<std::string> asked = {"garden", "xyzzy"};
  const tenfold::DictValues found = words.get_many(asked);  // or get_many({"garden", "xyzzy"})
  std::cout << found.values.at("value") << '\n' << found.found << '\n';
  return words.at("house").at("value").at<float>(0, 1) == 2 && found.found.at<bool>(0) &&
                 !found.found.at<bool>(1)
             ? 0
             : 1;
}
