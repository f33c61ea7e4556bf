// The API key, for this tab only: sessionStorage ends with the tab.
const NAME = "aici.key";

class Key {
  value = $state(sessionStorage.getItem(NAME) ?? "");
  /** Whether the server has refused a request for want of a valid key: the page then asks for one. */
  isAsked = $state(false);

  ask() {
    this.isAsked = true;
  }

  use(value: string) {
    this.value = value.trim();
    sessionStorage.setItem(NAME, this.value);
    this.isAsked = false;
  }

  forget() {
    this.value = "";
    sessionStorage.removeItem(NAME);
  }
}

export const key = new Key();
