// What the key of this tab may do, read once.
import { getJson } from "./api.ts";

export interface Account {
  name: string;
  admin: boolean;
  upload: boolean;
  own_controllers: boolean;
}

class OwnAccount {
  /** null until the server has answered: the page then offers nothing that the key may not do. */
  value = $state.raw<Account | null>(null);

  async load() {
    this.value ??= await getJson<Account>("/v1/key");
  }
}

export const account = new OwnAccount();
