// What the programs report: one line of JSON for each check.

// Run a function. The check has passed if the function returns something truthy.
export async function feature(name, detail, run) {
  let error = "";
  try {
    const found = await run();
    if (!found) error = `found ${JSON.stringify(found)}`;
  } catch (failure) {
    error = `${failure?.name}: ${failure?.message}`.slice(0, 600);
  }
  console.log(JSON.stringify({ feature: name, detail, error }));
}

// Report the checks of a feature that a program made by itself: truthy values have passed.
export function report(name, found) {
  for (const [detail, value] of Object.entries(found)) {
    const error = value ? "" : `found ${JSON.stringify(value)}`;
    console.log(JSON.stringify({ feature: name, detail, error }));
  }
}
