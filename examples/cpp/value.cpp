// JSON values, with the extensions of Python's json module.
#include <tenfold/value.hpp>

#include <iostream>
#include <vector>

int main() {
  const tenfold::Value options =
      tenfold::from_json(R"({"lr": 0.1, "betas": [0.9, 0.999], "steps": 3})", "options");
  const auto& members = *options.get_if<tenfold::Value::Object>();
  const auto lr = members.find("lr")->as<double>();
  const auto betas = members.find("betas")->as<std::vector<double>>();
  const auto steps = members.find("steps")->as<unsigned>();
  std::cout << options << '\n';
  return lr == 0.1 && betas.size() == 2 && steps == 3 && tenfold::Value(steps).as<int>() == 3 ? 0
                                                                                              : 1;
}
